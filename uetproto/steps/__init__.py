"""Steps of a simulation of two endpoints: rows of scripts stand for them, and the fuzzer draws them."""
