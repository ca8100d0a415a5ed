//! A connection of a client as what is served can tell it from others: by its identity, and that it is open still.

use std::sync::{Arc, Weak};

/// A connection, in the extensions of its requests. It is kept by the connection, by requests
/// under way, and for callers that go on elsewhere because this program has ended it.
#[derive(Clone, Debug, Default)]
pub struct Connection(Arc<()>);

/// A connection that may be closed by now.
#[derive(Clone, Debug)]
pub struct KnownConnection(Weak<()>);

impl Connection {
    /// The same to be kept, without keeping it open.
    #[must_use]
    pub fn known(&self) -> KnownConnection {
        KnownConnection(Arc::downgrade(&self.0))
    }
}

impl KnownConnection {
    /// Returns true while the connection is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Returns true for the same connection.
    #[must_use]
    pub fn is(&self, connection: &Connection) -> bool {
        Weak::as_ptr(&self.0) == Arc::as_ptr(&connection.0)
    }
}
