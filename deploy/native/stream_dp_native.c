/* From record batches to columns: the compiled step of stream_dp, of which `stream_dp/records/native.py` is the other
 * half.
 *
 * Rules: a record is read here only if it is plain, and then as Python reads it; every other record is left to Python,
 * which alone decides what is a dead letter. Plain is JSON in UTF-8 whose wanted values have the types that are wanted,
 * once each and without escapes, with numbers that are exact by integers alone. What is read depends on its record
 * alone. Nothing here allocates, keeps or throws; nothing is read beyond the end of a record, or written beyond what
 * the caller says there is room for. It knows no Python, so that one library serves every version of it.
 */

#include <float.h>
#include <stdint.h>
#include <string.h>

typedef unsigned char byte;

#ifndef STREAM_DP_VERSION
#define STREAM_DP_VERSION "none"
#endif

#define MOST_DEPTH 32   /* of arrays and objects that are skipped */
#define MOST_DIGITS 19  /* that an unsigned integer of 64 bits always holds */
#define EXACT_INTEGER (UINT64_C(1) << 53)
#define EXACT_POWER 22  /* the largest power of ten that is a double */

enum { OBJECT, CODED, BOOLEAN, INTEGER, NUMBER, TEXT };

typedef struct {
    int64_t start, length; /* of its key in `texts` */
    int64_t kind, nullable;
    int64_t column;        /* of its value; of an object, its number in `nodes` */
    int64_t slots, mask;   /* of a coded text: where its table begins, and its size less one */
    int64_t other;         /* the code of null, and of a text that is not in the table */
} Member;

typedef struct {
    int64_t first, count; /* of its members */
} Node;

typedef struct {
    int64_t start, length, code; /* of a text; a free place has the length -1 */
} Slot;

/* What is read of a record, as Python lays it out; nothing in it comes from a record. */
typedef struct {
    uint64_t members, nodes, slots, texts; /* addresses */
    int64_t count;                         /* of all members, at most 64 */
} Plan;

/* What is read of one record; `value` and `extra` of column c lie at out[2 * c * stride] and out[(2 * c + 1) * stride].
 * `extra` is 0 for null and else 1; of a text it is the length, -1 for null, and `value` is where it begins. */
typedef struct {
    const Member *members;
    const Node *nodes;
    const Slot *slots;
    const byte *texts;
    const byte *end;
    int64_t *out;
    int64_t stride;
    byte *room;
    int64_t held;
    uint64_t seen;
} Reading;

const char *stream_dp_native_version(void) { return STREAM_DP_VERSION; }

/* --- what JSON is made of: each returns where it ends, or NULL where it is not plain ------------------------------ */

static const byte *space(const byte *at, const byte *end) {
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) at++;
    return at;
}

#define EACH(b) (UINT64_C(0x0101010101010101) * (b))
#define BELOW(word, b) (((word) - EACH(b)) & ~(word))

/* Return the first byte that is no plain character of ASCII: a quote, a backslash, a control character, or one of more
 * bytes. The lowest byte that is marked in a word is one; those above it may be marked by its borrow. */
static const byte *characters(const byte *at, const byte *end) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    while (end - at >= 8) {
        uint64_t word, quotes, slashes, found;
        memcpy(&word, at, 8);
        quotes = word ^ EACH('"');
        slashes = word ^ EACH('\\');
        found = (BELOW(quotes, 1) | BELOW(slashes, 1) | BELOW(word, 0x20) | word) & EACH(0x80);
        if (found) return at + (__builtin_ctzll(found) >> 3);
        at += 8;
    }
#endif
    while (at < end && *at != '"' && *at != '\\' && *at >= 0x20 && *at < 0x80) at++;
    return at;
}

/* Return the end of a character of more than one byte, by the table of the Unicode standard (3-7). */
static const byte *several(const byte *at, const byte *end) {
    byte first = *at, low = 0x80, high = 0xBF;
    int more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    if (first < 0xC2 || first > 0xF4 || end - at <= more) return NULL;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
    if (at[1] < low || at[1] > high) return NULL;
    for (int i = 2; i <= more; i++)
        if (at[i] < 0x80 || at[i] > 0xBF) return NULL;
    return at + more + 1;
}

/* From behind the opening quote to the closing one. Escapes are plain only where nobody wants the text (`skipped`). */
static const byte *string(const byte *at, const byte *end, int skipped) {
    for (;;) {
        at = characters(at, end);
        if (at >= end) return NULL;
        if (*at == '"') return at;
        if (*at >= 0x80) {
            if (!(at = several(at, end))) return NULL;
        } else if (*at == '\\' && skipped && end - at > 1 && at[1] && strchr("\"\\/bfnrt", at[1])) {
            at += 2;
        } else {
            return NULL;
        }
    }
}

typedef struct {
    uint64_t digits; /* of the number without its point */
    int64_t power;   /* of ten, by which they are to be multiplied */
    int negative, whole;
} Decimal;

static int digit(const byte *at, const byte *end) { return at < end && *at >= '0' && *at <= '9'; }

static const byte *number(const byte *at, const byte *end, Decimal *read) {
    int digits = 0;
    read->digits = 0;
    read->power = 0;
    read->whole = 1;
    read->negative = at < end && *at == '-';
    at += read->negative;
    if (!digit(at, end)) return NULL;
    if (*at == '0' && digit(at + 1, end)) return NULL;
    for (; digit(at, end); at++) {
        if (++digits > MOST_DIGITS) return NULL;
        read->digits = 10 * read->digits + (uint64_t)(*at - '0');
    }
    if (at < end && *at == '.') {
        read->whole = 0;
        if (!digit(++at, end)) return NULL;
        for (; digit(at, end); at++) {
            if (++digits > MOST_DIGITS) return NULL;
            read->digits = 10 * read->digits + (uint64_t)(*at - '0');
            read->power--;
        }
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        int minus, power = 0, places = 0;
        read->whole = 0;
        at++;
        minus = at < end && *at == '-';
        at += at < end && (*at == '-' || *at == '+');
        if (!digit(at, end)) return NULL;
        for (; digit(at, end); at++) {
            if (++places > 2) return NULL;
            power = 10 * power + (*at - '0');
        }
        read->power += minus ? -power : power;
    }
    return at;
}

static const byte *word(const byte *at, const byte *end, const char *wanted) {
    size_t size = strlen(wanted);
    return (size_t)(end - at) >= size && !memcmp(at, wanted, size) ? at + size : NULL;
}

/* Skip a value that nobody wants. */
static const byte *skip(const byte *at, const byte *end, int depth) {
    Decimal unused;
    if (at >= end || depth > MOST_DEPTH) return NULL;
    switch (*at) {
    case '"':
        at = string(at + 1, end, 1);
        return at ? at + 1 : NULL;
    case 't': return word(at, end, "true");
    case 'f': return word(at, end, "false");
    case 'n': return word(at, end, "null");
    case '[':
    case '{': {
        byte close = *at == '[' ? ']' : '}';
        at = space(at + 1, end);
        if (at < end && *at == close) return at + 1;
        for (;;) {
            if (close == '}') {
                if (at >= end || *at != '"' || !(at = string(at + 1, end, 1))) return NULL;
                at = space(at + 1, end);
                if (at >= end || *at != ':') return NULL;
                at = space(at + 1, end);
            }
            if (!(at = skip(at, end, depth + 1))) return NULL;
            at = space(at, end);
            if (at >= end) return NULL;
            if (*at == close) return at + 1;
            if (*at != ',') return NULL;
            at = space(at + 1, end);
        }
    }
    default: return number(at, end, &unused);
    }
}

/* --- wanted values ------------------------------------------------------------------------------------------------ */

static uint64_t hashed(const byte *text, int64_t length) {
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (int64_t i = 0; i < length; i++) hash = (hash ^ text[i]) * UINT64_C(0x100000001B3);
    return hash ^ (hash >> 32);
}

/* Return the place of a text in a table, or the free place where it would stand. */
static const Slot *placed(const Slot *table, uint64_t mask, const byte *texts, const byte *text, int64_t length) {
    uint64_t at = hashed(text, length) & mask;
    while (table[at].length >= 0 &&
           (table[at].length != length || memcmp(texts + table[at].start, text, (size_t)length)))
        at = (at + 1) & mask;
    return table + at;
}

/* Fill a table of free slots, more than there are `entries`; of equal texts the first one counts. */
void stream_dp_native_table(Slot *table, int64_t mask, const byte *texts, const Slot *entries, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const byte *text = texts + entries[i].start;
        Slot *slot = table + (placed(table, (uint64_t)mask, texts, text, entries[i].length) - table);
        if (slot->length < 0) *slot = entries[i];
    }
}

static double doubled(const Decimal *read, int *plain) {
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    double value = (double)read->digits;
    /* Both operands are exact, so one operation rounds once; not where the processor computes in wider registers. */
    *plain = FLT_EVAL_METHOD == 0 && read->digits <= EXACT_INTEGER && read->power <= EXACT_POWER &&
             read->power >= -EXACT_POWER && (read->digits || !read->negative);
    if (!*plain) return 0;
    value = read->power < 0 ? value / tens[-read->power] : value * tens[read->power];
    return read->negative ? -value : value;
}

static void put(Reading *this, const Member *member, int64_t value, int64_t extra) {
    int64_t *out = this->out + 2 * member->column * this->stride;
    out[0] = value;
    out[this->stride] = extra;
}

static void put_null(Reading *this, const Member *member) {
    int64_t value = member->kind == CODED || member->kind == BOOLEAN ? member->other : 0;
    put(this, member, value, member->kind == TEXT ? -1 : 0);
}

static const byte *object(Reading *this, const byte *at, const Node *node);

static const byte *value(Reading *this, const byte *at, const Member *member) {
    const byte *end = this->end, *begin = at + 1;
    Decimal read;
    int64_t bits;
    if (at >= end) return NULL;
    if (*at == 'n') {
        /* What is below an object that is null stays unseen, which is plain only where all of it may be. */
        if (member->kind != OBJECT && !member->nullable) return NULL;
        if (member->kind != OBJECT) put_null(this, member);
        return word(at, end, "null");
    }
    switch (member->kind) {
    case OBJECT: return *at == '{' ? object(this, begin, this->nodes + member->column) : NULL;
    case CODED:
    case TEXT:
        if (*at != '"' || !(at = string(begin, end, 0))) return NULL;
        if (member->kind == TEXT) {
            memcpy(this->room + this->held, begin, (size_t)(at - begin));
            put(this, member, this->held, at - begin);
            this->held += at - begin;
        } else {
            const Slot *slot =
                placed(this->slots + member->slots, (uint64_t)member->mask, this->texts, begin, at - begin);
            put(this, member, slot->length < 0 ? member->other : slot->code, 1);
        }
        return at + 1;
    case BOOLEAN:
        put(this, member, *at == 't', 1);
        return word(at, end, *at == 't' ? "true" : "false");
    default:
        if (!(at = number(at, end, &read))) return NULL;
        if (member->kind == INTEGER) {
            if (!read.whole || read.digits > (uint64_t)INT64_MAX + (uint64_t)read.negative) return NULL;
            bits = read.negative ? (int64_t)(0 - read.digits) : (int64_t)read.digits;
        } else {
            int plain;
            double exact = doubled(&read, &plain);
            if (!plain) return NULL;
            memcpy(&bits, &exact, sizeof bits);
        }
        put(this, member, bits, 1);
        return at;
    }
}

/* From behind the opening brace to behind the closing one. `next` is a guess: records have their keys in one order. */
static const byte *object(Reading *this, const byte *at, const Node *node) {
    const byte *end = this->end;
    const Member *first = this->members + node->first;
    int64_t next = 0;
    at = space(at, end);
    if (at < end && *at == '}') return at + 1;
    for (;;) {
        const byte *key = at + 1;
        const Member *member = NULL;
        int64_t length;
        if (at >= end || *at != '"' || !(at = string(key, end, 0))) return NULL;
        length = at - key;
        at = space(at + 1, end);
        if (at >= end || *at != ':') return NULL;
        at = space(at + 1, end);
        for (int64_t tried = 0; tried < node->count && !member; tried++) {
            const Member *other = first + next;
            next = next + 1 < node->count ? next + 1 : 0;
            if (other->length == length && !memcmp(this->texts + other->start, key, (size_t)length)) member = other;
        }
        if (member) {
            uint64_t bit = UINT64_C(1) << (member - this->members);
            if (this->seen & bit) return NULL;
            this->seen |= bit;
            at = value(this, at, member);
        } else {
            at = skip(at, end, 0);
        }
        if (!at) return NULL;
        at = space(at, end);
        if (at >= end) return NULL;
        if (*at == '}') return at + 1;
        if (*at != ',') return NULL;
        at = space(at + 1, end);
    }
}

/* Read one record, which lies up to `end`; return whether it is plain. */
static int record(Reading *this, const Plan *plan, const byte *at) {
    this->seen = 0;
    at = space(at, this->end);
    if (at >= this->end || *at != '{' || !(at = object(this, at + 1, this->nodes))) return 0;
    if (space(at, this->end) != this->end) return 0;
    for (int64_t i = 0; i < plan->count; i++) {
        const Member *member = this->members + i;
        if (member->kind == OBJECT || this->seen >> i & 1) continue;
        if (!member->nullable) return 0;
        put_null(this, member);
    }
    return 1;
}

/* Read `count` records, of which record i lies in `data` from bounds[2 * i] to bounds[2 * i + 1], into columns of
 * `out`, and into `plain` whether each is; the text of texts goes to `room` from `held` on, which has as much room as
 * the records are long. Return where the next text goes. */
int64_t stream_dp_native_columns(const Plan *plan, const byte *data, const int64_t *bounds, int64_t count,
                                 int64_t *out, int64_t stride, byte *plain, byte *room, int64_t held) {
    Reading this;
    this.members = (const Member *)(uintptr_t)plan->members;
    this.nodes = (const Node *)(uintptr_t)plan->nodes;
    this.slots = (const Slot *)(uintptr_t)plan->slots;
    this.texts = (const byte *)(uintptr_t)plan->texts;
    this.stride = stride;
    this.room = room;
    for (int64_t i = 0; i < count; i++) {
        this.out = out + i;
        this.end = data + bounds[2 * i + 1];
        this.held = held;
        plain[i] = (byte)record(&this, plan, data + bounds[2 * i]);
        if (plain[i]) held = this.held;
    }
    return held;
}

/* --- record batches of Kafka's format 2 --------------------------------------------------------------------------- */

static const byte *varint(const byte *at, const byte *end, int64_t *value) {
    uint64_t read = 0;
    for (int shift = 0; at < end && shift < 63; shift += 7) {
        read |= (uint64_t)(*at & 0x7F) << shift;
        if (!(*at++ & 0x80)) {
            *value = (int64_t)(read >> 1) ^ -(int64_t)(read & 1);
            return at;
        }
    }
    return NULL;
}

/* Bytes that are null, of the length -1, or lie before `end`. */
static const byte *bytes(const byte *at, const byte *end, int64_t *length) {
    if (!(at = varint(at, end, length)) || *length < -1 || *length > end - at) return NULL;
    return at + (*length < 0 ? 0 : *length);
}

/* Write to `bounds` where the value of each of `count` records in `data` begins and ends, a null one's at one place;
 * return whether all can be read and fill `data`. What is behind a value, its headers, nobody wants. */
int stream_dp_native_values(const byte *data, int64_t size, int64_t count, int64_t *bounds) {
    const byte *at = data, *end = data + size;
    for (int64_t i = 0; i < count; i++) {
        int64_t length, unused;
        const byte *stop;
        if (!(at = varint(at, end, &length)) || length < 0 || length > end - at) return 0;
        stop = at + length;
        for (int part = 0; part < 3; part++) /* attributes, time and offset */
            if (!(at = varint(at, stop, &unused))) return 0;
        if (!(at = bytes(at, stop, &unused)) || !(at = bytes(at, stop, &length))) return 0;
        bounds[2 * i + 1] = at - data;
        bounds[2 * i] = at - data - (length < 0 ? 0 : length);
        at = stop;
    }
    return at == end;
}
