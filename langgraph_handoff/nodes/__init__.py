"""The nodes of the graph: each file is one node of the drawing."""
