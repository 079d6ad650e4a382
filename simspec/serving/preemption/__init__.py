"""What happens when a running sequence needs a KV block and none is free; one policy per file."""
