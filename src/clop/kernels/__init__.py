"""Why the layer is fast: permutations drawn and moved by compiled code, as operators of torch."""
