"""The host's side of a kernel: sockets, messages, outputs. Everything it reads is hostile."""
