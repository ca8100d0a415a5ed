//! The open connections of a listener, and their limits. A new connection never waits for a place: the client with the
//! most connections loses its least recently used one, so that a probe is answered whatever others keep open.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    buffered_bytes::BufferedBytes,
    calls::{AllCalls, Calls},
};

/// The time for which connections of an authenticated client are evicted last: longer than a connection lasts.
pub(super) const AUTHENTICATED_LATELY: Duration = Duration::from_secs(2 * 60 * 60);
/// The maximum number of clients that are known to have authenticated: as many as there may be connections of a fleet.
const MAX_AUTHENTICATED: usize = 4_096;

/// The limits of a listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The maximum number of open connections.
    pub(super) total: usize,
    /// The maximum number of open connections of one client.
    pub(super) per_peer: usize,
    /// The maximum number of open connections of one identity, from whichever addresses.
    pub(super) per_identity: Option<usize>,
    /// The age from which a connection accepts no further request.
    pub(super) age: Duration,
    /// The time after that age in which the request under way must be answered and read.
    pub(super) last_request: Duration,
    /// The time in which the headers of a request must arrive, from the end of the request before.
    pub(super) headers: Duration,
    /// The maximum time in which a client reads nothing of an answer.
    pub(super) write: Duration,
}

impl Default for Limits {
    /// These are enough for probes and a few scrapers.
    fn default() -> Self {
        Self {
            total: 128,
            per_peer: 32,
            per_identity: None,
            age: Duration::from_secs(60),
            last_request: Duration::from_secs(10),
            headers: Duration::from_secs(10),
            write: Duration::from_secs(30),
        }
    }
}

/// The source of a connection, which is known before the client has sent anything.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Source {
    /// The address of a TCP peer.
    Address(IpAddr),
    /// The user id of a Unix socket's peer.
    User(u32),
}

impl From<IpAddr> for Source {
    /// An IPv4 client of a listener on `[::]` counts as the same client of one on 0.0.0.0.
    fn from(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(formatter),
            Self::User(user) => write!(formatter, "user {user}"),
        }
    }
}

/// The open connections of a listener.
#[derive(Debug)]
pub(super) struct OpenConnections {
    limits: Limits,
    open: Arc<Mutex<Open>>,
    /// Counts the calls of all connections.
    calls: AllCalls,
}

#[derive(Debug, Default)]
struct Open {
    opened: u64,
    /// The connections in the order in which they were opened.
    connections: BTreeMap<Number, Entry>,
    /// The authenticated clients, with the time of their last authentication.
    authenticated: HashMap<Source, Instant>,
}

/// The position of a connection in the order in which connections were opened.
type Number = u64;

#[derive(Debug)]
struct Entry {
    source: Source,
    /// The client's identity, if it is known.
    identity: Option<String>,
    /// True if it was evicted. It takes no place then, but its bytes count until it is dropped.
    is_leaving: bool,
    excess: CancellationToken,
    calls: Calls,
    buffered: Option<(Arc<BufferedBytes>, CancellationToken)>,
}

/// An open connection; dropping it frees its place.
#[derive(Debug)]
pub(super) struct OpenConnection {
    number: Number,
    open: Arc<Mutex<Open>>,
    calls: Calls,
    /// Cancelled when the connection is evicted.
    pub(super) excess: CancellationToken,
}

impl OpenConnections {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, open: Arc::default(), calls: AllCalls::default() }
    }

    /// Adds a connection. Returns the client whose connection was evicted for it, if any.
    pub(super) fn open(&self, source: impl Into<Source>) -> (OpenConnection, Option<Source>) {
        self.add(source.into(), None)
    }

    /// Adds a connection of a client that has this identity.
    pub(super) fn open_of(&self, source: Source, identity: String) -> (OpenConnection, Option<Source>) {
        self.add(source, Some(identity))
    }

    fn add(&self, source: Source, identity: Option<String>) -> (OpenConnection, Option<Source>) {
        let mut open = self.open.lock();
        let loses = open.loses(source, identity.as_deref(), self.limits);
        if let Some((number, _)) = loses
            && let Some(entry) = open.connections.get_mut(&number)
        {
            entry.is_leaving = true;
            entry.excess.cancel();
        }
        open.opened += 1;
        let (number, excess, calls) = (open.opened, CancellationToken::new(), self.calls.of_connection());
        let entry =
            Entry { source, identity, is_leaving: false, excess: excess.clone(), calls: calls.clone(), buffered: None };
        open.connections.insert(number, entry);
        let connection = OpenConnection { number, open: Arc::clone(&self.open), calls, excess };
        (connection, loses.map(|(_, source)| source))
    }

    /// Records that a client has authenticated: for some time, connections of other clients are evicted first.
    pub(super) fn has_authenticated(&self, source: Source) {
        let (now, mut open) = (Instant::now(), self.open.lock());
        let authenticated = &mut open.authenticated;
        if authenticated.len() >= MAX_AUTHENTICATED {
            authenticated.retain(|_, at| now.duration_since(*at) < AUTHENTICATED_LATELY);
        }
        if authenticated.len() >= MAX_AUTHENTICATED
            && !authenticated.contains_key(&source)
            && let Some(oldest) = authenticated.iter().min_by_key(|(_, at)| **at).map(|(source, _)| *source)
        {
            authenticated.remove(&oldest);
        }
        authenticated.insert(source, now);
    }

    /// Returns true if connections of other clients are evicted before those of this one.
    pub(super) fn has_authenticated_lately(&self, source: Source) -> bool {
        self.open.lock().has_authenticated_lately(source)
    }

    /// Cuts connections until the remaining ones hold at most `limit` bytes, each time the largest one of the client
    /// that holds the most. Returns the clients of the cut connections.
    pub(super) fn cut_largest(&self, limit: usize) -> Vec<Source> {
        let (mut open, mut cut) = (self.open.lock(), Vec::new());
        while let Some((number, source)) = open.largest(limit) {
            if let Some(Entry { buffered: Some((_, token)), .. }) = open.connections.remove(&number) {
                token.cancel();
            }
            cut.push(source);
        }
        cut
    }
}

impl OpenConnection {
    /// Counts these bytes for the connection. Returns the token that cuts it.
    pub(super) fn set_buffered(&self, buffered: Arc<BufferedBytes>) -> CancellationToken {
        let cut = CancellationToken::new();
        if let Some(entry) = self.open.lock().connections.get_mut(&self.number) {
            entry.buffered = Some((buffered, cut.clone()));
        }
        cut
    }

    /// Returns the counter of its calls, which works while the connection is borrowed elsewhere.
    pub(super) fn calls(&self) -> Calls {
        self.calls.clone()
    }

    /// Returns true if a call was made.
    pub(super) fn has_called(&self) -> bool {
        self.calls.last() > 0
    }
}

impl Open {
    /// Returns the connection that has to be evicted for a new one of `source`, and its client.
    fn loses(&self, source: Source, identity: Option<&str>, limits: Limits) -> Option<(Number, Source)> {
        let is_its = |entry: &Entry| identity.is_some() && entry.identity.as_deref() == identity;
        let count = self.staying().filter(|(_, entry)| is_its(entry)).count();
        if limits.per_identity.is_some_and(|most| count >= most) {
            return self.least_used(is_its);
        }
        let mut counts: HashMap<Source, usize> = HashMap::new();
        for (_, entry) in self.staying() {
            *counts.entry(entry.source).or_default() += 1;
        }
        let of = |source: Source| counts.get(&source).copied().unwrap_or_default();
        if of(source) >= limits.per_peer {
            return self.least_used(|entry| entry.source == source);
        }
        if counts.values().sum::<usize>() < limits.total {
            return None;
        }
        let others = counts.iter().filter(|(source, _)| !self.has_authenticated_lately(**source));
        if let Some(most) = others.map(|(_, count)| *count).max() {
            return self
                .least_used(|Entry { source, .. }| of(*source) == most && !self.has_authenticated_lately(*source));
        }
        let most = counts.values().copied().max()?;
        self.least_used(|entry| of(entry.source) == most)
    }

    fn staying(&self) -> impl Iterator<Item = (&Number, &Entry)> {
        self.connections.iter().filter(|(_, entry)| !entry.is_leaving)
    }

    /// Returns the least recently used one of these connections; one that has made no call comes first.
    fn least_used(&self, is_among: impl Fn(&Entry) -> bool) -> Option<(Number, Source)> {
        let candidates = self.staying().filter(|(_, entry)| is_among(entry));
        let (number, entry) = candidates.min_by_key(|(_, entry)| entry.calls.last())?;
        Some((*number, entry.source))
    }

    fn has_authenticated_lately(&self, source: Source) -> bool {
        self.authenticated.get(&source).is_some_and(|at| at.elapsed() < AUTHENTICATED_LATELY)
    }

    /// Returns the largest connection of the client that holds the most, if all together hold more than `limit` bytes.
    fn largest(&self, limit: usize) -> Option<(Number, Source)> {
        let bytes = |entry: &Entry| entry.buffered.as_ref().map_or(0, |(buffered, _)| buffered.bytes());
        let mut sums: HashMap<Source, usize> = HashMap::new();
        for entry in self.connections.values() {
            *sums.entry(entry.source).or_default() += bytes(entry);
        }
        if sums.values().sum::<usize>() <= limit {
            return None;
        }
        let (source, _) = sums.into_iter().max_by_key(|(_, sum)| *sum)?;
        let of_source = self.connections.iter().filter(|(_, entry)| entry.source == source);
        of_source.max_by_key(|(_, entry)| bytes(entry)).map(|(number, _)| (*number, source))
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

    const LIMITS: Limits = Limits {
        total: 4,
        per_peer: 2,
        per_identity: None,
        age: Duration::ZERO,
        last_request: Duration::ZERO,
        headers: Duration::ZERO,
        write: Duration::ZERO,
    };

    /// Opens connections of the clients 10.0.0.a, 10.0.0.b and so on, in this order. Returns those that stay open.
    fn staying(clients: &str) -> String {
        let connections = OpenConnections::new(LIMITS);
        let address = |client: char| IpAddr::from([10, 0, 0, u8::try_from(client).unwrap_or_default()]);
        let opened: Vec<_> = clients.chars().map(|client| (client, connections.open(address(client)).0)).collect();
        opened.iter().filter(|(_, connection)| !connection.excess.is_cancelled()).map(|(client, _)| client).collect()
    }

    #[rstest]
    #[case::all_that_fit("aabb", "aabb")]
    #[case::the_oldest_of_who_has_too_many("abaa", "baa")]
    #[case::the_newest_stays("aaaaaaaa", "aa")]
    #[case::who_has_few_comes_in("aabbc", "abbc")]
    #[case::and_stays("aabbcd", "abcd")]
    #[case::of_equals_the_oldest("abcde", "bcde")]
    fn the_client_with_most_connections_is_evicted(#[case] clients: &str, #[case] stay: &str) {
        assert_eq!(staying(clients), stay);
    }

    #[test]
    fn a_closed_connection_frees_its_place() {
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
        let addresses = ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.1"].into_iter().flat_map(str::parse::<IpAddr>);
        let opened: Vec<_> = addresses.map(|peer| connections.open(peer)).collect();
        assert_eq!(opened.iter().map(|(_, lost)| lost.is_some()).collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn a_connection_that_calls_outlives_those_that_do_not() {
        let connections = OpenConnections::new(LIMITS);
        let peer = IpAddr::from([10, 0, 0, 1]);
        let (caller, _) = connections.open(peer);
        caller.calls().count();
        let silent: Vec<_> = (0..100).map(|_| connections.open(peer).0).collect();
        assert!(!caller.excess.is_cancelled());
        assert_eq!(silent.iter().filter(|silent| !silent.excess.is_cancelled()).count(), LIMITS.per_peer - 1);
    }

    /// Each autoscaler of a fleet has an address of its own.
    #[test]
    fn the_clients_of_a_thousand_clusters_have_authenticated_lately_at_once() {
        let connections = OpenConnections::new(LIMITS);
        (0..1_000).for_each(|user| connections.has_authenticated(Source::User(user)));
        assert!((0..1_000).all(|user| connections.has_authenticated_lately(Source::User(user))));
    }

    #[test]
    fn strangers_are_evicted_before_authenticated_clients() {
        let connections = OpenConnections::new(LIMITS);
        let address = |n| IpAddr::from([10, 0, 0, n]);
        connections.has_authenticated(address(1).into());
        let known = [connections.open(address(1)).0, connections.open(address(1)).0];
        let strangers: Vec<_> = (2..250).map(|n| connections.open(address(n)).0).collect();
        assert!(known.iter().all(|known| !known.excess.is_cancelled()));
        assert_eq!(strangers.iter().filter(|stranger| !stranger.excess.is_cancelled()).count(), 2);
    }

    #[test]
    fn a_limited_number_of_clients_is_remembered() {
        let connections = OpenConnections::new(LIMITS);
        for n in 0..5_000 {
            connections.has_authenticated(Source::User(n));
        }
        assert_eq!(connections.open.lock().authenticated.len(), MAX_AUTHENTICATED);
    }
}
