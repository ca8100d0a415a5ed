//! The connection of a client, as services see it: its identity, the client, and if it is still open.

use std::{
    borrow::Cow,
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Weak},
};

use arcstr::ArcStr;
use jiff::Timestamp;

/// A connection, in the extensions of its requests. It is held by the connection itself, by requests under way, and for
/// a while after this program has closed the connection, since the caller goes on over another one.
#[derive(Clone, Debug)]
pub struct Connection(Arc<Client>);

/// A connection that may have been closed.
#[derive(Clone, Debug)]
pub struct KnownConnection(Weak<Client>);

/// A client: authenticated by a certificate, or known by its address or by its process on this machine.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Client {
    /// The name by which it was admitted, safe for a log: of 256 bytes at most.
    pub name: ArcStr,
    /// The only URI among the names of its certificate; `None` if there is none, or there are several.
    pub uri: Option<ArcStr>,
    /// The serial number of its certificate, in hexadecimal digits.
    pub serial: Option<ArcStr>,
    /// The time from which its certificate is valid.
    pub valid_from: Option<Timestamp>,
    /// The last moment of its certificate's validity.
    pub until: Option<Timestamp>,
    /// The address that it connects from, which may be that of a proxy.
    pub peer: Option<IpAddr>,
    /// True if it may only read.
    pub is_read_only: bool,
}

impl Client {
    /// Returns the URI of its certificate, or else its name, marked as one: it may equal another client's URI.
    #[must_use]
    pub fn identity(&self) -> Cow<'_, str> {
        self.uri.as_ref().map_or_else(|| format!("name {}", self.name).into(), |uri| uri.as_str().into())
    }

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

    /// Returns a client without a certificate, whose address and port are all that is known of it.
    pub(super) fn at(address: SocketAddr) -> Self {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self { name: address.to_string().into(), peer: Some(address.ip()), ..Self::default() }
    }

    /// Returns the client of a Unix socket, by the credentials of its peer. A process in another namespace has no id.
    pub(super) fn of_user(user: u32, process: Option<i32>) -> Self {
        let name = match process.filter(|process| *process > 0) {
            Some(process) => format!("process {process} of user {user}"),
            None => format!("user {user}"),
        };
        Self { name: name.into(), ..Self::default() }
    }
}

impl Connection {
    /// Returns the connection of a client.
    #[must_use]
    pub fn of(client: Client) -> Self {
        Self(Arc::new(client))
    }

    /// Returns a weak reference, which doesn't keep the connection open.
    #[must_use]
    pub fn known(&self) -> KnownConnection {
        KnownConnection(Arc::downgrade(&self.0))
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.0
    }
}

impl KnownConnection {
    /// Returns true while the connection is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Returns the client while the connection is open.
    #[must_use]
    pub fn client(&self) -> Option<Client> {
        self.0.upgrade().map(|client| Client::clone(&client))
    }

    /// Returns true if it is the same connection.
    #[must_use]
    pub fn is(&self, connection: &Connection) -> bool {
        Weak::as_ptr(&self.0) == Arc::as_ptr(&connection.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("10.0.0.1:4711", "10.0.0.1:4711")]
    #[case("[::ffff:10.0.0.1]:4711", "10.0.0.1:4711")]
    #[case("[2001:db8::1]:4711", "[2001:db8::1]:4711")]
    fn a_client_without_a_certificate_is_called_by_its_address(#[case] address: &str, #[case] name: &str) {
        let client = Client::at(address.parse().unwrap());
        assert_eq!((client.name.as_str(), client.is_read_only), (name, false));
    }

    /// A certificate with several URIs is nobody's, and may name another client's first.
    #[test]
    fn a_name_is_not_the_identity_of_the_client_with_that_uri() {
        let stage: ArcStr = "spiffe://prod/ns/team-a/cluster/stage".into();
        let named = Client { name: stage.clone(), ..Client::default() };
        let client = Client { uri: Some(stage.clone()), ..named.clone() };
        assert_eq!((client.identity().as_ref(), named.identity() == client.identity()), (stage.as_str(), false));
    }

    #[rstest]
    #[case(Some(17), "process 17 of user 65532")]
    #[case(Some(0), "user 65532")]
    #[case(None, "user 65532")]
    fn a_client_of_a_socket_is_called_by_its_process_and_user(#[case] process: Option<i32>, #[case] name: &str) {
        assert_eq!(Client::of_user(65_532, process).name, name);
    }
}
