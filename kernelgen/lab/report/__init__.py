"""One page about everything that was measured: `collect` gathers it, `charts` draws it, `page` writes it down."""
