"""The trusted core: graphs, ops, sets and the engine that bounds them."""
