"""Messages, mechanisms, neighbours, guarantees, composition: no event loop, clock, file or socket."""
