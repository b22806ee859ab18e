"""What every store must do, one file per duty; see holdfast.testing.store_conformance."""
