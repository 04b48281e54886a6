"""One module per PyTorch setting family: its options, its contract, what its template needs."""
