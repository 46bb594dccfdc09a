"""Labelled samples: loading by name or path, downloads, tables, images, the hub, noise and splits."""
