"""InfiniBand transport over UDP (RoCEv2): queue pairs of RC, UC and UD, requester and responder."""
