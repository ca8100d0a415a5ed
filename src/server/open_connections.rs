//! The open connections of a listener and their limits. Nobody waits for a place: the client that has the most connections
//! loses its oldest one, so that a probe is answered whatever others keep open.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The limits of a listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Open connections.
    pub(super) total: usize,
    /// Open connections of one IP address.
    pub(super) per_peer: usize,
    /// The age from which a connection takes no further request.
    pub(super) age: Duration,
    /// The time that the request under way has then, until its answer is read.
    pub(super) last_request: Duration,
    /// The time for which a client may read nothing of an answer.
    pub(super) write: Duration,
}

impl Default for Limits {
    /// Probes and a few scrapers need no more.
    fn default() -> Self {
        Self {
            total: 128,
            per_peer: 32,
            age: Duration::from_secs(60),
            last_request: Duration::from_secs(10),
            write: Duration::from_secs(30),
        }
    }
}

/// The open connections of a listener.
#[derive(Debug)]
pub(super) struct OpenConnections {
    limits: Limits,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    opened: u64,
    /// In the order in which they were opened.
    connections: BTreeMap<u64, (IpAddr, CancellationToken)>,
}

/// An open connection; dropping it makes room.
#[derive(Debug)]
pub(super) struct OpenConnection {
    number: u64,
    open: Arc<Mutex<Open>>,
    /// Cancelled when it has to make room.
    pub(super) excess: CancellationToken,
}

impl OpenConnections {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, open: Arc::default() }
    }

    /// Adds a connection. Returns the client that has lost another one for it, if one has.
    pub(super) fn open(&self, peer: IpAddr) -> (OpenConnection, Option<IpAddr>) {
        // An IPv4 client of a listener on [::] is the same as one of 0.0.0.0.
        let peer = peer.to_canonical();
        let mut open = self.open.lock();
        let loses = open.loses(peer, self.limits);
        if let Some((number, _)) = loses
            && let Some((_, excess)) = open.connections.remove(&number)
        {
            excess.cancel();
        }
        open.opened += 1;
        let (number, excess) = (open.opened, CancellationToken::new());
        open.connections.insert(number, (peer, excess.clone()));
        (OpenConnection { number, open: Arc::clone(&self.open), excess }, loses.map(|(_, peer)| peer))
    }
}

impl Open {
    /// Returns the connection that has to make room for one of `peer`, and whose it is.
    fn loses(&self, peer: IpAddr, limits: Limits) -> Option<(u64, IpAddr)> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (peer, _) in self.connections.values() {
            *counts.entry(*peer).or_default() += 1;
        }
        let count = |peer: IpAddr| counts.get(&peer).copied().unwrap_or_default();
        let most = if count(peer) >= limits.per_peer {
            count(peer)
        } else if self.connections.len() >= limits.total {
            counts.values().copied().max()?
        } else {
            return None;
        };
        let is_over = |of: IpAddr| if count(peer) >= limits.per_peer { of == peer } else { count(of) == most };
        self.connections.iter().find(|(_, (of, _))| is_over(*of)).map(|(number, (of, _))| (*number, *of))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.open.lock().connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const LIMITS: Limits =
        Limits { total: 4, per_peer: 2, age: Duration::ZERO, last_request: Duration::ZERO, write: Duration::ZERO };

    /// Opens connections of the clients 10.0.0.a, 10.0.0.b and so on, in this order. Returns those that stay open.
    fn staying(clients: &str) -> String {
        let connections = OpenConnections::new(LIMITS);
        let address = |client: char| IpAddr::from([10, 0, 0, u8::try_from(client).unwrap_or_default()]);
        let opened: Vec<_> = clients.chars().map(|client| (client, connections.open(address(client)).0)).collect();
        opened.iter().filter(|(_, connection)| !connection.excess.is_cancelled()).map(|(client, _)| client).collect()
    }

    #[rstest]
    #[case::all_that_there_is_room_for("aabb", "aabb")]
    #[case::the_oldest_of_who_has_too_many("abaa", "baa")]
    #[case::the_newest_stays("aaaaaaaa", "aa")]
    #[case::who_has_few_comes_in("aabbc", "abbc")]
    #[case::and_stays("aabbcd", "abcd")]
    #[case::of_equals_the_oldest("abcde", "bcde")]
    fn who_has_the_most_makes_room(#[case] clients: &str, #[case] stay: &str) {
        assert_eq!(staying(clients), stay);
    }

    #[test]
    fn what_is_closed_makes_room() {
        let connections = OpenConnections::new(LIMITS);
        let peer = IpAddr::from([10, 0, 0, 1]);
        for _ in 0..100 {
            let (first, lost) = connections.open(peer);
            assert_eq!(lost, None);
            drop(first);
        }
        assert!(connections.open.lock().connections.is_empty());
    }

    #[test]
    fn a_client_of_both_families_is_one() {
        let connections = OpenConnections::new(LIMITS);
        let addresses = ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.1"].into_iter().flat_map(str::parse);
        let opened: Vec<_> = addresses.map(|peer| connections.open(peer)).collect();
        assert_eq!(opened.iter().map(|(_, lost)| lost.is_some()).collect::<Vec<_>>(), [false, false, true]);
    }
}
