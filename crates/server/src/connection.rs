//! The connection of a client, as services see it: its identity, the authenticated client, and if it is still open.

use std::{
    fmt::Write as _,
    net::IpAddr,
    sync::{Arc, Weak},
};

use arcstr::ArcStr;

/// A connection, in the extensions of its requests. It is held by the connection itself, by requests under way, and for
/// a while after this program has closed the connection, since the caller goes on over another one.
#[derive(Clone, Debug, Default)]
pub struct Connection(Arc<Option<Client>>);

/// A connection that may have been closed.
#[derive(Clone, Debug)]
pub struct KnownConnection(Weak<Option<Client>>);

/// An authenticated client, by a certificate or as the user of a Unix socket's peer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Client {
    /// The name by which it was admitted, safe for a log: of 256 bytes at most.
    pub name: ArcStr,
    /// The only URI among the names of its certificate; `None` if there is none, or there are several.
    pub uri: Option<ArcStr>,
    /// The serial number of its certificate, in hexadecimal digits.
    pub serial: Option<ArcStr>,
    /// The address that it connects from, which may be that of a proxy.
    pub peer: Option<IpAddr>,
    /// True if it may only read.
    pub is_read_only: bool,
}

impl Client {
    /// Returns its name by its certificate's URI, with the serial number and the address.
    #[must_use]
    pub fn certified(&self) -> ArcStr {
        let mut text = self.uri.as_ref().unwrap_or(&self.name).to_string();
        if let Some(serial) = &self.serial {
            // Writing to a text can't fail.
            let _ = write!(text, ", certificate {serial}");
        }
        if let Some(peer) = self.peer {
            let _ = write!(text, ", from {peer}");
        }
        text.into()
    }
}

impl Connection {
    /// Returns the connection of a client.
    #[must_use]
    pub fn of(client: Option<Client>) -> Self {
        Self(Arc::new(client))
    }

    /// Returns a weak reference, which doesn't keep the connection open.
    #[must_use]
    pub fn known(&self) -> KnownConnection {
        KnownConnection(Arc::downgrade(&self.0))
    }

    /// Returns the authenticated client; `None` where no authentication is required.
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

    /// Returns true if it is the same connection.
    #[must_use]
    pub fn is(&self, connection: &Connection) -> bool {
        Weak::as_ptr(&self.0) == Arc::as_ptr(&connection.0)
    }
}
