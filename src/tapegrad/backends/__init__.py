"""Where tensors live and what computes on them."""
