"""The only room that knows TorchRec: its objects in, its objects out."""
