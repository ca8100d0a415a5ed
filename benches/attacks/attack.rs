//! The attacks, each for the duration of a turn. A tenant's objects stay between turns, and change only under attack;
//! connections are closed.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use clap::ValueEnum;
use serde_json::json;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpSocket, TcpStream},
    time::{Instant, interval, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Misbehaviour, TEMPLATE_GROUP, TEMPLATE_KIND, TEMPLATES, bounds, templates_event, tenants_event};

/// The numbers of objects, kinds, groups of one template, connections and scrapes at full size.
const OBJECTS: f64 = 1_000.0;
const KINDS: f64 = 10_000.0;
const SHARING: f64 = 1_000.0;
const CONNECTIONS: f64 = 1_000.0;
const SCRAPES: f64 = 128.0;
/// The number of requests that each scrape sends at once. Their answers are some megabytes: a single one would fit into
/// the socket buffers of both sides, and leave the server nothing to hold.
const REQUESTS_OF_A_SCRAPE: usize = 128;
/// The receive buffer of each connection, in bytes.
const RECEIVE_BUFFER: u32 = 4_096;
/// The interval in which a tenant changes its large objects: 25 MiB a second, more than an etcd takes.
const BETWEEN_CHANGES: Duration = Duration::from_millis(10);
/// The interval in which closed connections are opened again.
const BETWEEN_OPENINGS: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Attack {
    Objects,
    Kinds,
    Template,
    Connections,
    Scrapes,
    EndlessPages,
    LongMachines,
    LongNodes,
    LongBoth,
    GrowingBody,
    RepeatingWatch,
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().expect("none is skipped").get_name())
    }
}

/// The listeners of the program.
#[derive(Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) probe: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// An attack, and the program under attack.
pub(crate) struct World {
    attack: Attack,
    scale: f64,
    api: Arc<Api>,
    program: Addresses,
    /// The number of events that were sent, or of connections that were opened.
    done: AtomicUsize,
}

impl World {
    pub(crate) fn new(attack: Attack, scale: f64, api: Arc<Api>, program: Addresses) -> Self {
        Self { attack, scale, api, program, done: AtomicUsize::new(0) }
    }

    fn count(&self, full: f64) -> usize {
        (full * self.scale).ceil() as usize
    }

    /// Describes the number of operations in all turns.
    pub(crate) fn done(&self) -> String {
        let done = self.done.load(Ordering::Relaxed);
        let (requests, discoveries) = self.api.requests();
        match self.attack {
            Attack::Objects => format!("{done} events of {} objects", self.count(OBJECTS)),
            Attack::Kinds => format!("{done} events naming a kind each, {discoveries} requests of discovery"),
            Attack::Template => format!("{done} events of {} groups and the template of all", self.count(SHARING)),
            Attack::Connections | Attack::Scrapes => format!("{done} connections opened"),
            Attack::EndlessPages
            | Attack::LongMachines
            | Attack::LongNodes
            | Attack::LongBoth
            | Attack::GrowingBody
            | Attack::RepeatingWatch => {
                format!("{requests} lists and watches asked for")
            }
        }
    }

    /// Attacks until `ended`.
    pub(crate) async fn run(self: Arc<Self>, is_first: bool, ended: CancellationToken) {
        match self.attack {
            Attack::Objects => {
                ended.run_until_cancelled(self.objects(is_first)).await;
            }
            Attack::Kinds => {
                ended.run_until_cancelled(self.kinds(is_first)).await;
            }
            Attack::Template => {
                ended.run_until_cancelled(self.template(is_first)).await;
            }
            Attack::Connections => {
                ended.run_until_cancelled(self.connections()).await;
            }
            Attack::Scrapes => {
                ended.run_until_cancelled(self.scrapes()).await;
            }
            Attack::EndlessPages => self.misbehave(Misbehaviour::EndlessPages, &ended).await,
            Attack::LongMachines => self.misbehave(Misbehaviour::LongMachines, &ended).await,
            Attack::LongNodes => self.misbehave(Misbehaviour::LongNodes, &ended).await,
            Attack::LongBoth => self.misbehave(Misbehaviour::LongBoth, &ended).await,
            Attack::GrowingBody => self.misbehave(Misbehaviour::GrowingBody, &ended).await,
            Attack::RepeatingWatch => self.misbehave(Misbehaviour::RepeatingWatch, &ended).await,
        }
    }

    async fn misbehave(&self, misbehaviour: Misbehaviour, ended: &CancellationToken) {
        self.api.misbehave(misbehaviour);
        ended.cancelled().await;
        self.api.misbehave(Misbehaviour::None);
    }

    async fn send(&self, kind: &str, number: usize, annotations: &str, infrastructure: &str) {
        let event = tenants_event(kind, number, self.api.next_version(), annotations, infrastructure);
        self.api.send("machinedeployments", event).await;
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Creates objects with 256 KiB of annotations each in the first turn, as fast as they are read, and then changes
    /// them continuously.
    async fn objects(&self, is_first: bool) {
        let count = self.count(OBJECTS);
        if is_first {
            for number in 0..count {
                self.send("ADDED", number, &annotations(number, number), "null").await;
            }
        }
        let mut changes = interval(BETWEEN_CHANGES);
        for change in 0.. {
            changes.tick().await;
            let seed = self.done.load(Ordering::Relaxed);
            self.send("MODIFIED", change % count, &annotations(change, seed), "null").await;
        }
    }

    /// Creates groups that each name another missing kind of infrastructure template, and then changes the kinds.
    async fn kinds(&self, is_first: bool) {
        let (count, annotations) = (self.count(KINDS), bounds().to_string());
        if is_first {
            for number in 0..count {
                self.send("ADDED", number, &annotations, &template(number)).await;
            }
        }
        for change in 0.. {
            if change % 10 == 0 {
                sleep(BETWEEN_CHANGES).await;
            }
            let other = count + self.done.load(Ordering::Relaxed);
            self.send("MODIFIED", change % count, &annotations, &template(other)).await;
        }
    }

    /// Creates groups that share a template, and then changes the template.
    async fn template(&self, is_first: bool) {
        let shared = json!({"apiGroup": TEMPLATE_GROUP, "kind": TEMPLATE_KIND, "name": "shared"}).to_string();
        if is_first {
            let annotations = bounds().to_string();
            for number in 0..self.count(SHARING) {
                self.send("ADDED", number, &annotations, &shared).await;
            }
        }
        let mut changes = interval(BETWEEN_CHANGES);
        loop {
            changes.tick().await;
            let disk = self.done.fetch_add(1, Ordering::Relaxed);
            self.api.send(TEMPLATES, templates_event(self.api.next_version(), disk)).await;
        }
    }

    /// Opens connections to each listener that send half a request, and again when they are closed.
    async fn connections(&self) {
        let Addresses { grpc, http, probe, admin } = self.program;
        let half = "GET /metrics HTTP/1.1\r\nHost: ";
        let listeners = [(grpc, "PRI * HTTP/2.0\r\n"), (http, half), (probe, half), (admin, half)];
        self.hold_open(&listeners, self.count(CONNECTIONS)).await;
    }

    /// Requests metrics without reading the answers.
    async fn scrapes(&self) {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", self.program.http);
        let requests = request.repeat(REQUESTS_OF_A_SCRAPE);
        self.hold_open(&[(self.program.http, &requests)], self.count(SCRAPES)).await;
    }

    async fn hold_open(&self, listeners: &[(SocketAddr, &str)], count: usize) {
        let mut held: Vec<Vec<TcpStream>> = listeners.iter().map(|_| Vec::new()).collect();
        loop {
            let next = Instant::now() + BETWEEN_OPENINGS;
            for ((address, sent), held) in listeners.iter().zip(&mut held) {
                held.retain(is_open);
                while held.len() < count {
                    let Ok(mut stream) = connect(*address).await else { break };
                    let _ = stream.write_all(sent.as_bytes()).await;
                    held.push(stream);
                    self.done.fetch_add(1, Ordering::Relaxed);
                }
            }
            tokio::time::sleep_until(next).await;
        }
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.connect(address).await
}

/// Returns true unless the other side has closed the connection. None of its answer is read.
fn is_open(stream: &TcpStream) -> bool {
    let mut byte = [std::mem::MaybeUninit::uninit()];
    match socket2::SockRef::from(stream).peek(&mut byte) {
        Ok(read) => read > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

fn template(number: usize) -> String {
    json!({"apiGroup": format!("group-{}.example.com", number % 100), "kind": format!("Kind{number}Template"), "name": "t"})
        .to_string()
}

/// Returns some 256 KiB of annotations, of three kinds in turn: as many values of max length as fit; a few of them;
/// lists of many entries.
fn annotations(number: usize, seed: usize) -> String {
    const PREFIX: &str = "capacity.cluster-autoscaler.kubernetes.io";
    const OWN: &str = "capacity.capi-autoscaler-provider.io";
    let mut all = bounds();
    let filler = |bytes: usize| format!("{seed}-{}", "v".repeat(bytes));
    match number % 3 {
        0 => {
            for key in 0..16 {
                all[format!("{PREFIX}/key-{key}")] = filler(15_800).into();
            }
        }
        1 => {
            all[format!("{PREFIX}/gpu-type")] = filler(14_000).into();
            all[format!("{PREFIX}/dra-driver")] = filler(14_000).into();
            all["example.com/nobody-reads-it"] = filler(220_000).into();
        }
        _ => {
            let list = |entry: &dyn Fn(usize) -> String| (0..1_000).map(entry).collect::<Vec<_>>().join(",");
            all[format!("{PREFIX}/labels")] = list(&|n| format!("l{n}=v{seed}")).into();
            all[format!("{OWN}/resources")] = list(&|n| format!("r{n}={seed}")).into();
            all["example.com/nobody-reads-it"] = filler(220_000).into();
        }
    }
    all.to_string()
}
