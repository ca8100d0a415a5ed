//! The server as a client sees it.
