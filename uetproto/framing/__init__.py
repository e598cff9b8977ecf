"""Between the engines and whoever drives them: a datagram becomes a frame, and a frame becomes a datagram."""
