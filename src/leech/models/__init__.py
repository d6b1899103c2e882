"""Networks: layers, architectures as TOML, the model folder and inference."""
