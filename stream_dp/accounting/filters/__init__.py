"""Filters: whether adaptively chosen costs still fit a total that was fixed before. One file per filter."""
