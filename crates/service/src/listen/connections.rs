//! The connections of a listener: who the client of each is, what it calls, and how many may be open. A new connection
//! never waits for a place: the client with the most connections loses its least recently used one, so that a probe is
//! answered whatever others keep open.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fmt::{self, Write as _},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// The pause after a failed accept. If file descriptors are exhausted, for example, an immediate retry would keep the
/// thread from answering other connections.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection, in the extensions of its requests. It is held by the connection itself, by requests under way, and for
/// a while after this program has closed the connection at its age, since the caller goes on over another one.
#[derive(Clone, Debug)]
pub struct Connection(Arc<Client>);

/// A connection that may have been closed.
#[derive(Clone, Debug)]
pub struct KnownConnection(Weak<Client>);

/// A client: authenticated by a certificate, or known by its address or by its process on this machine.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Client {
    /// The name by which it was admitted, safe for a log: of 256 bytes at most.
    #[serde(skip)]
    pub name: ArcStr,
    /// The only URI among the names of its certificate; `None` if there is none, or there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<ArcStr>,
    /// The serial number of its certificate, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<ArcStr>,
    /// The address that it connects from, which may be that of a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
    /// The time from which its certificate is valid.
    #[serde(skip)]
    pub valid_from: Option<Timestamp>,
    /// The last moment of its certificate's validity.
    #[serde(default, rename = "certificateUntil", skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// True if it may only read.
    #[serde(skip)]
    pub is_read_only: bool,
}

impl Client {
    /// Returns the URI of its certificate, or else its name, marked as one: it may equal another client's URI.
    pub fn identity(&self) -> Cow<'_, str> {
        self.uri.as_ref().map_or_else(|| format!("name {}", self.name).into(), |uri| uri.as_str().into())
    }

    /// Returns its name by its certificate's URI, with the serial number and the address.
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
    pub fn of(client: Client) -> Self {
        Self(Arc::new(client))
    }

    /// Returns a weak reference, which doesn't keep the connection open.
    pub fn known(&self) -> KnownConnection {
        KnownConnection(Arc::downgrade(&self.0))
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.0
    }
}

impl KnownConnection {
    /// Returns true while the connection is open.
    pub fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Returns the client while the connection is open.
    pub fn client(&self) -> Option<Client> {
        self.0.upgrade().map(|client| Client::clone(&client))
    }

    /// Returns true if it is the same connection.
    pub fn is(&self, connection: &Connection) -> bool {
        Weak::as_ptr(&self.0) == Arc::as_ptr(&connection.0)
    }
}

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

/// The calls of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenCalls(Arc<Mutex<Activity>>);

#[derive(Clone, Copy, Debug, Default)]
struct Activity {
    /// The number of calls under way.
    under_way: usize,
    /// The time at which a call began or ended last; `None` if none has begun.
    last: Option<Instant>,
}

/// A call that is being answered, or whose answer is being read.
#[derive(Debug)]
pub(super) struct UnderWay(OpenCalls);

impl OpenCalls {
    /// Notes a call that is under way until the result is dropped.
    pub(super) fn begin(&self) -> UnderWay {
        let mut activity = self.0.lock();
        activity.under_way += 1;
        activity.last = Some(Instant::now());
        UnderWay(self.clone())
    }

    pub(super) fn are_several(&self) -> bool {
        self.0.lock().under_way > 1
    }

    fn last(&self) -> Option<Instant> {
        self.0.lock().last
    }

    /// Waits for the moment at which the last call ended this time ago: a loop has ended, and the next one is far. A
    /// silence that began earlier doesn't count, since a loop may begin at any moment of it. A connection without a
    /// call has no loops.
    pub(super) async fn silence(&self, length: Duration) {
        let asked = Instant::now();
        loop {
            let (Activity { under_way, last }, now) = (*self.0.lock(), Instant::now());
            let silent = last.unwrap_or(asked) + length;
            if under_way == 0 && (asked..=now).contains(&silent) {
                return;
            }
            sleep_until(if under_way == 0 && silent > now { silent } else { now + length }).await;
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut activity = self.0.0.lock();
        activity.under_way -= 1;
        activity.last = Some(Instant::now());
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
    opened: Number,
    /// The connections in the order in which they were opened.
    connections: BTreeMap<Number, Entry>,
}

/// The position of a connection in the order in which connections were opened.
type Number = u64;

#[derive(Debug)]
struct Entry {
    source: Source,
    /// The client's identity, if it is known.
    identity: Option<String>,
    /// True if connections of others are evicted before this one.
    is_known: bool,
    shared: OpenConnection,
}

/// The part of an open connection that its task and the listener share.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenConnection {
    pub(super) calls: OpenCalls,
    /// The number of bytes that are held for it.
    pub(super) bytes: Arc<AtomicUsize>,
    /// Cancelled when it has to end at once: it is evicted, or all connections hold too many bytes.
    pub(super) cut: CancellationToken,
}

/// The place of an open connection, which is freed when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    number: Number,
    open: Arc<Mutex<Open>>,
    pub(super) connection: OpenConnection,
}

impl OpenConnections {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, open: Arc::default() }
    }

    /// Adds a connection. Returns the client whose connection was evicted for it, if any.
    pub(super) fn open(&self, source: Source, identity: Option<String>, is_known: bool) -> (Place, Option<Source>) {
        let mut open = self.open.lock();
        let excess = open.excess(source, identity.as_deref(), self.limits);
        let evicted = excess.and_then(|number| {
            let entry = open.connections.remove(&number)?;
            entry.shared.cut.cancel();
            Some(entry.source)
        });
        open.opened += 1;
        let (number, connection) = (open.opened, OpenConnection::default());
        let entry = Entry { source, identity, is_known, shared: connection.clone() };
        open.connections.insert(number, entry);
        (Place { number, open: Arc::clone(&self.open), connection }, evicted)
    }

    /// Cuts connections until the remaining ones hold at most `limit` bytes, each time the largest one of the client
    /// that holds the most. Returns the clients of the cut connections.
    pub(super) fn cut_largest(&self, limit: usize) -> Vec<Source> {
        let (mut open, mut cut) = (self.open.lock(), Vec::new());
        while let Some(number) = open.largest(limit)
            && let Some(entry) = open.connections.remove(&number)
        {
            entry.shared.cut.cancel();
            cut.push(entry.source);
        }
        cut
    }
}

impl OpenConnection {
    /// Returns true if a call was made.
    pub(super) fn has_called(&self) -> bool {
        self.calls.last().is_some()
    }
}

impl Open {
    /// Returns the connection that has to be evicted for a new one of `source`, if any: the least recently used one of
    /// the client that has too many. One that has made no call comes first.
    fn excess(&self, source: Source, identity: Option<&str>, limits: Limits) -> Option<Number> {
        let mut counts: HashMap<Source, usize> = HashMap::new();
        self.connections.values().for_each(|entry| *counts.entry(entry.source).or_default() += 1);
        let count = |source: &Source| counts.get(source).copied().unwrap_or_default();
        let is_its = |entry: &Entry| identity.is_some() && entry.identity.as_deref() == identity;
        let of_identity = self.connections.values().filter(|entry| is_its(entry)).count();
        let is_candidate: Box<dyn Fn(&Entry) -> bool> = if limits.per_identity.is_some_and(|most| of_identity >= most) {
            Box::new(is_its)
        } else if count(&source) >= limits.per_peer {
            Box::new(|entry| entry.source == source)
        } else if self.connections.len() >= limits.total {
            let rank = |entry: &Entry| (!entry.is_known, count(&entry.source));
            let first = self.connections.values().map(rank).max()?;
            Box::new(move |entry| rank(entry) == first)
        } else {
            return None;
        };
        let candidates = self.connections.iter().filter(|(_, entry)| is_candidate(entry));
        candidates.min_by_key(|(_, entry)| entry.shared.calls.last()).map(|(number, _)| *number)
    }

    /// Returns the largest connection of the client that holds the most, if all together hold more than `limit` bytes.
    fn largest(&self, limit: usize) -> Option<Number> {
        let bytes = |entry: &Entry| entry.shared.bytes.load(Ordering::Relaxed);
        let mut sums: HashMap<Source, usize> = HashMap::new();
        self.connections.values().for_each(|entry| *sums.entry(entry.source).or_default() += bytes(entry));
        if sums.values().sum::<usize>() <= limit {
            return None;
        }
        let (source, _) = sums.into_iter().max_by_key(|(_, sum)| *sum)?;
        let of_source = self.connections.iter().filter(|(_, entry)| entry.source == source);
        of_source.max_by_key(|(_, entry)| bytes(entry)).map(|(number, _)| *number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.lock().connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tokio::time::sleep;

    use super::*;

    /// Opens connections of the clients 10.0.0.a, 10.0.0.b and so on, in this order. Those in upper case have
    /// authenticated, and those before an exclamation mark call. Returns those that stay open.
    fn staying(clients: &str) -> String {
        let connections = OpenConnections::new(Limits { total: 4, per_peer: 2, ..Limits::default() });
        let mut opened: Vec<(char, Place)> = Vec::new();
        for client in clients.chars() {
            if client == '!' {
                drop(opened.last().unwrap().1.connection.calls.begin());
                continue;
            }
            let address = IpAddr::from([10, 0, 0, u8::try_from(client.to_ascii_lowercase()).unwrap()]);
            opened.push((client, connections.open(address.into(), None, client.is_uppercase()).0));
        }
        let stay = opened.iter().filter(|(_, place)| !place.connection.cut.is_cancelled());
        stay.map(|(client, _)| client).collect()
    }

    #[rstest]
    #[case::all_that_fit("aabb", "aabb")]
    #[case::the_oldest_of_who_has_too_many("abaa", "baa")]
    #[case::the_newest_stays("aaaaaaaa", "aa")]
    #[case::who_has_few_comes_in("aabbc", "abbc")]
    #[case::and_stays("aabbcd", "abcd")]
    #[case::of_equals_the_oldest("abcde", "bcde")]
    #[case::one_that_calls_outlives_those_that_do_not("a!aaaaa", "aa")]
    #[case::strangers_go_before_those_who_have_authenticated("AAbcdefgh", "AAgh")]
    fn the_client_with_most_connections_is_evicted(#[case] clients: &str, #[case] stay: &str) {
        assert_eq!(staying(clients), stay);
    }

    #[test]
    fn a_closed_connection_frees_its_place_and_a_client_of_both_families_is_one() {
        let connections = OpenConnections::new(Limits { per_peer: 2, ..Limits::default() });
        let open = |address: &str| connections.open(address.parse::<IpAddr>().unwrap().into(), None, false);
        let (first, second) = (open("10.0.0.1"), open("::ffff:10.0.0.1"));
        assert_eq!((first.1, second.1), (None, None));
        drop(first);
        let third = open("10.0.0.1");
        assert_eq!(third.1, None);
        assert!(open("10.0.0.1").1.is_some());
        drop((second, third));
        assert!(connections.open.lock().connections.is_empty());
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// The times at which calls begin and end, in tenths of a second, and the end of the silence.
    #[rstest]
    #[case::after_the_last_call(&[(0, 15), (24, 24)], 34)]
    #[case::but_not_after_one_long_ago(&[(100, 100)], 110)]
    #[case::at_once_without_a_call(&[], 10)]
    #[tokio::test(start_paused = true)]
    async fn a_loop_has_ended_a_second_after_its_last_call(#[case] times: &[(u32, u32)], #[case] expected: u128) {
        let (calls, begun) = (OpenCalls::default(), Instant::now());
        if times.first().is_some_and(|(begin, _)| *begin > 10) {
            drop(calls.begin());
            sleep(SECOND * 17 / 2).await;
        }
        let caller = async {
            for (begin, end) in times {
                sleep_until(begun + SECOND * *begin / 10).await;
                let under_way = calls.begin();
                sleep_until(begun + SECOND * *end / 10).await;
                drop(under_way);
            }
        };
        tokio::join!(calls.silence(SECOND), caller);
        assert_eq!(begun.elapsed().as_millis() / 100, expected);
    }

    #[rstest]
    #[case("10.0.0.1:4711", "10.0.0.1:4711")]
    #[case("[::ffff:10.0.0.1]:4711", "10.0.0.1:4711")]
    #[case("[2001:db8::1]:4711", "[2001:db8::1]:4711")]
    fn a_client_without_a_certificate_is_called_by_its_address(#[case] address: &str, #[case] name: &str) {
        assert_eq!(Client::at(address.parse().unwrap()).name, name);
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
