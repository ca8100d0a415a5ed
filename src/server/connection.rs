//! A connection of a client as what is served can tell it from others: by its identity, by who has authenticated on it, and
//! that it is open still.

use std::sync::{Arc, Weak};

use arcstr::ArcStr;

/// A connection, in the extensions of its requests. It is kept by the connection, by requests
/// under way, and for callers that go on elsewhere because this program has ended it.
#[derive(Clone, Debug, Default)]
pub struct Connection(Arc<Option<Client>>);

/// A connection that may be closed by now.
#[derive(Clone, Debug)]
pub struct KnownConnection(Weak<Option<Client>>);

/// A client that has authenticated, by a certificate or as the user of a Unix socket's other end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Client {
    /// The name by which it was let in, harmless for a log: of 256 bytes at most.
    pub name: ArcStr,
    /// True if it may only read.
    pub is_read_only: bool,
}

impl Connection {
    /// A connection of a client.
    #[must_use]
    pub fn of(client: Option<Client>) -> Self {
        Self(Arc::new(client))
    }

    /// The same to be kept, without keeping it open.
    #[must_use]
    pub fn known(&self) -> KnownConnection {
        KnownConnection(Arc::downgrade(&self.0))
    }

    /// Returns who has authenticated on it; `None` where nobody has to.
    #[must_use]
    pub fn client(&self) -> Option<&Client> {
        Option::as_ref(&self.0)
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
