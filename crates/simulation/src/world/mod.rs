//! A world: the API with its controllers, copies of the program, and actors, each on a host; and the loop that
//! schedules every message.

mod clusters;
mod disasters;
mod judge;
mod requests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use anyhow::Result;
use bytes::Bytes;
use http::Response;
use parking_lot::Mutex;
use sandbox::{
    Contract,
    api::Api,
    clock::Clock,
    define_cluster_api,
    http::{InProcess, ServerSettings},
};
use tokio::sync::{mpsc, oneshot};
use tower::BoxError;

use self::{
    clusters::{Cluster, objects},
    disasters::{Silence, Ways},
    judge::AtRest,
};
use crate::{
    actor::Script,
    controllers::{self, Driver},
    copy::Copy,
    entropy::{self, Nanos, SECOND},
    faults::{CallFault, Faults, RequestFault},
    host::{self, Host, TICK},
    kinds,
    ledger::{Author, Check, Ledger, Ledgers},
    network::{ApiId, ApiRequest, Body, Call, HostId, MANAGEMENT, Message, Port, RpcResult, Sent},
    outages::{Denials, Outage, Overloads, Rights, Shortage},
    plan::{Chance, Habits, Plan, Report},
    setup,
    tasks::{self, Scheduler},
};

/// The longest time that hosts run ahead while no message is under way.
const QUANTUM: Nanos = SECOND;
/// The end of a world, in which the API must get few requests.
const REST: Nanos = 300 * SECOND;
/// The time after the end of faults in which Cluster Autoscaler must have brought Nodes for all Pods.
const PROGRESS: Nanos = 800 * SECOND;
/// The time after the end of faults in which the last Pods are created.
const SETTLE: Nanos = 60 * SECOND;
/// The max number of requests of a copy at rest besides watches and Events, and of watches that it begins.
const MOST_AT_REST: u64 = 60;

/// The host of the API and its controllers.
const CLUSTER: HostId = 0;

/// Runs a world on a thread of its own, whose randomness and time come from the seed.
///
/// # Errors
/// Fails if a runtime can't be created, or the world itself fails; a broken rule is in the report.
pub fn run(plan: &Plan) -> Result<Report> {
    let plan = plan.clone();
    let thread = std::thread::Builder::new().name(format!("seed {}", plan.seed)).spawn(move || {
        entropy::seed(plan.seed);
        host::record_panics();
        World::new(plan)?.run()
    })?;
    thread.join().map_err(|_| anyhow::anyhow!("the world panicked"))?
}

enum Event {
    Request {
        from: HostId,
        sent: Nanos,
        fault: Option<RequestFault>,
        request: ApiRequest,
    },
    Answer(HostId, oneshot::Sender<Result<Response<Body>, BoxError>>, Result<Response<Body>, BoxError>),
    Piece(u64, Option<Bytes>),
    Unread(u64),
    Call(HostId, Option<CallFault>, Call),
    Reply(u64, RpcResult),
    /// An answer arrives at its caller.
    Heard(HostId, oneshot::Sender<RpcResult>, RpcResult),
    Kill(usize, u64),
    Drain(usize, u64),
    Drained(HostId, bool),
    Start(usize),
    Freeze(usize, u64),
    Thaw(usize),
    Jump(usize, u64),
    /// An outage begins: the copy's watches of a kind end.
    Outage(Outage),
    /// A workload cluster can't be reached any more.
    Silence(Silence),
}

struct Calling {
    from: HostId,
    copy: usize,
    /// The number of the caller's Cluster.
    cluster: usize,
    fault: Option<CallFault>,
    /// True if it changes something.
    is_command: bool,
    reply: oneshot::Sender<RpcResult>,
}

/// A watch under way.
struct Stream {
    to: HostId,
    api: ApiId,
    name: String,
    pieces: mpsc::UnboundedSender<Bytes>,
    /// The arrival time of its newest chunk: none overtakes another, nor the head of the answer.
    newest: Nanos,
    sent: u64,
    /// True if nothing of it arrives any more.
    is_silent: bool,
    /// Its last chunks, the newest one last.
    last: VecDeque<Bytes>,
}

impl Stream {
    fn new((to, api): (HostId, ApiId), name: String, pieces: mpsc::UnboundedSender<Bytes>, newest: Nanos) -> Self {
        Self { to, api, name, pieces, newest, sent: 0, is_silent: false, last: VecDeque::new() }
    }

    /// Returns the watched path, from the name of `watch` and a URI.
    fn path(&self) -> &str {
        let uri = self.name.split_once(' ').map_or("", |(_, uri)| uri);
        uri.split_once('?').map_or(uri, |(path, _)| path)
    }
}

enum Member {
    Plain(Host),
    Copy(Box<Copy>),
    Dead,
}

impl Member {
    fn host(&self) -> Option<&Host> {
        match self {
            Self::Plain(host) => Some(host),
            Self::Copy(copy) => Some(&copy.host),
            Self::Dead => None,
        }
    }
}

struct World {
    plan: Plan,
    chance: Chance,
    now: Nanos,
    members: Vec<Member>,
    outbox: Arc<Mutex<Vec<Sent>>>,
    events: BTreeMap<(Nanos, u64), Event>,
    next_event: u64,
    api: InProcess,
    /// The same API, independent of the served versions.
    inside: Api,
    /// The APIs of the workload clusters of a fleet.
    workloads: Vec<InProcess>,
    streams: HashMap<u64, Stream>,
    next_stream: u64,
    calls: BTreeMap<u64, Calling>,
    next_call: u64,
    requests: HashMap<HostId, u64>,
    /// The number of calls that each host has sent.
    sent_calls: HashMap<HostId, u64>,
    trace: Trace,
    report: Report,
    ledger: Ledgers,
    faults: Faults,
    rights: Rights,
    denials: Denials,
    overloads: Overloads,
    outage: Option<Outage>,
    silence: Option<Silence>,
    copies: usize,
    ways: Ways,
    /// The copies that were asked to end, with the ordinal of that decision.
    draining: BTreeMap<usize, u64>,
    /// The schedulers of the copies, which outlive their kills.
    schedulers: Vec<Scheduler>,
    tasks: tasks::Shared,
    clusters: Vec<Cluster>,
    /// The hosts of their owners.
    owners: Vec<HostId>,
    /// The hosts that don't run, with the time since when.
    frozen: BTreeMap<HostId, Nanos>,
    /// The requests that copies send at rest.
    at_rest: AtRest,
    script: Script,
    controllers: controllers::Shared,
}

impl World {
    fn new(plan: Plan) -> Result<Self> {
        let cluster = Host::new(0)?;
        let chance = Chance::new(plan.seed);
        let places = setup::places(chance, plan.fleet);
        let clusters: Vec<Cluster> =
            (0..places.len()).map(|number| Cluster::new(chance, &plan, (number, &places))).collect();
        let until = plan.seconds * SECOND;
        let api = Api::new(Clock::real());
        let drawn = if chance.of("habits", 0, 0).bool() { Habits::Any } else { Habits::Calm };
        let habits = plan.habits.unwrap_or(drawn);
        let (outbox, controllers) = (Arc::default(), controllers::Shared::default());
        let trace = Trace { kept: plan.traced.then(Vec::new), ..Trace::default() };
        let concerns: Vec<_> = clusters.iter().enumerate().filter(|_| plan.fleet).map(Cluster::concern).collect();
        let drivers = cluster.enter(async {
            define_cluster_api(&api, Contract::V1Beta2)?;
            let api_of_all = api.with_unserved();
            let driver = |seed, concern| {
                Driver::new(&api_of_all, Chance::new(seed), until, (habits, &plan), controllers.clone(), concern)
            };
            let version = controllers::version(chance);
            let mut drivers: Vec<_> = match concerns.as_slice() {
                [] => vec![driver(plan.seed, None)],
                all => all.iter().map(|it| driver(clusters[it.number].seed, Some((it, version)))).collect(),
            };
            api.load_values(objects(&clusters, &plan))?;
            drivers.iter_mut().try_for_each(Driver::settle)?;
            anyhow::Ok(drivers)
        })?;
        for driver in drivers {
            cluster.spawn(driver.run(Port::new(CLUSTER, &cluster, &outbox)));
        }
        let copies = plan.copies.unwrap_or_else(|| chance.of("copies", 0, 0).usize(1..4));
        let tasks = tasks::Shared::default();
        let scheduler = |copy| Scheduler::new(chance, copy, until, plan.skipped.clone(), tasks.clone());
        let schedulers = (0..copies).map(scheduler).collect();
        let mut world = Self {
            chance,
            now: cluster.now(),
            members: vec![Member::Plain(cluster)],
            outbox,
            events: BTreeMap::new(),
            next_event: 0,
            inside: api.with_unserved(),
            api: InProcess::new(api, ServerSettings::default()),
            workloads: concerns.into_iter().map(|it| InProcess::new(it.workload, ServerSettings::default())).collect(),
            streams: HashMap::new(),
            next_stream: 0,
            calls: BTreeMap::new(),
            next_call: 0,
            requests: HashMap::new(),
            sent_calls: HashMap::new(),
            trace,
            report: Report::default(),
            ledger: if plan.fleet { Ledgers::of_fleet(&places) } else { Ledgers::of_one() },
            faults: Faults::new(chance, until, plan.skipped.clone()),
            rights: Rights::new(chance, until),
            denials: Denials::new(chance, until),
            overloads: Overloads::new(chance, copies, until),
            outage: None,
            silence: None,
            copies,
            ways: Ways::of(chance, copies),
            draining: BTreeMap::new(),
            schedulers,
            tasks,
            clusters,
            owners: Vec::new(),
            frozen: BTreeMap::new(),
            at_rest: AtRest::default(),
            script: Script::new(plan.skipped.clone()),
            controllers,
            plan,
        };
        let (ways, kinds_change) = (world.ways, kinds::change(world.plan.seed));
        world.ledger.each(|ledger| {
            ledger.read_only = ways.read_only;
            ledger.replaces = ways.replaces();
            ledger.calm_from = until;
            ledger.kinds_change = kinds_change;
        });
        world.observe(Author::Controllers);
        for copy in 0..copies {
            world.members.push(Member::Dead);
            world.start_copy(copy)?;
        }
        let shortage = Shortage::of(chance, habits, until);
        world.start_actors(shortage.filter(|_| !world.plan.skipped.contains(&Shortage::DECISION)))?;
        world.plan_disasters();
        Ok(world)
    }

    /// Returns the host of the operator: the first one after the copies.
    fn operator(&self) -> HostId {
        1 + self.copies
    }

    fn copy_of(&self, host: HostId) -> Option<usize> {
        let is_copy = (1..=self.copies).contains(&host) || matches!(self.members.get(host), Some(Member::Copy(_)));
        is_copy.then(|| host - 1)
    }

    fn run(mut self) -> Result<Report> {
        let chaos = self.plan.seconds * SECOND;
        self.run_to(chaos)?;
        self.script.begin_quiet();
        let end = chaos + self.plan.quiet * SECOND;
        self.run_to(end.saturating_sub(REST))?;
        self.at_rest = AtRest::default();
        let reached = self.reached();
        let fresh = self.members.len();
        let scheduler = Scheduler::new(self.chance, self.copies, 0, BTreeSet::new(), tasks::Shared::default());
        self.members.push(self.new_copy(fresh, "fresh", scheduler, self.ways.options(self.copies))?);
        self.run_to(end)?;
        if !self.ledger.has_findings() {
            self.ledger.each(Ledger::removals_are_over);
            self.judge(fresh, &reached);
        }
        self.report.hash = self.trace.hasher.finish();
        self.report.lines = self.trace.kept.take().unwrap_or_default();
        self.report.findings = self.ledger.findings();
        let exceptions = &mut self.report.exceptions;
        self.ledger.each(|ledger| {
            for (cause, count) in std::mem::take(&mut ledger.exceptions) {
                *exceptions.entry(cause).or_default() += count;
            }
        });
        self.report.struck = std::mem::take(&mut self.faults.struck);
        self.report.struck.append(&mut self.script.take_done());
        self.report.struck.append(&mut self.controllers.struck.lock());
        self.report.struck.append(&mut self.tasks.struck.lock());
        let report = std::mem::take(&mut self.report);
        // Freeing a world's memory would take a thirtieth of its run time, and the process ends right after it.
        std::mem::forget(self);
        Ok(report)
    }

    /// Runs to a time, or until a rule is broken.
    fn run_to(&mut self, end: Nanos) -> Result<()> {
        while self.now < end && !self.ledger.has_findings() {
            self.take_outbox();
            self.note_time();
            let mut limit = (self.now + QUANTUM).min(end);
            if let Some((&(time, _), _)) = self.events.first_key_value() {
                if time <= self.now {
                    if let Some(((_, _), event)) = self.events.pop_first() {
                        self.happen(event)?;
                    }
                    limit = self.now;
                } else {
                    limit = limit.min(time);
                }
            }
            self.run_hosts(limit);
            self.note_time();
            let (foreign, observed, pauses) = (
                std::mem::take(&mut *self.controllers.foreign.lock()),
                std::mem::take(&mut *self.controllers.observed.lock()),
                std::mem::take(&mut *self.tasks.pauses.lock()),
            );
            self.ledger.each(|ledger| {
                ledger.foreign.append(&mut foreign.clone());
                ledger.observed.append(&mut observed.clone());
                ledger.paused(&mut pauses.clone());
            });
            self.observe(Author::Controllers);
            for panic in host::taken_panics() {
                self.ledger.find(Check::Panic, panic);
            }
        }
        Ok(())
    }

    fn note_time(&mut self) {
        let now = self.now;
        self.ledger.each(|ledger| ledger.at(now));
    }

    /// Shows all changes since the last call to the ledgers.
    fn observe(&mut self, author: Author) {
        if !self.plan.fleet {
            let inside = &self.inside;
            return self.ledger.each(|ledger| ledger.observe(inside, author));
        }
        for (number, workload) in self.workloads.iter().enumerate() {
            self.ledger.of_mut(number).observe_both(&self.inside, workload.api(), author);
        }
    }

    fn api_of(&self, api: ApiId) -> &InProcess {
        if api == MANAGEMENT { &self.api } else { &self.workloads[api - 1] }
    }

    /// Runs all hosts up to `limit`, or until one has sent something. Clients run first, so that servers aren't ahead
    /// of them.
    fn run_hosts(&mut self, limit: Nanos) {
        let mut limit = limit;
        for (id, member) in self.members.iter().enumerate().rev() {
            let Some(host) = member.host().filter(|_| !self.frozen.contains_key(&id)) else { continue };
            host.run_until(limit);
            if !self.outbox.lock().is_empty() {
                limit = limit.min(host.now());
            }
        }
        self.now = self.now.max(limit);
    }

    fn at(&mut self, time: Nanos, event: Event) {
        self.next_event += 1;
        self.events.insert((time, self.next_event), event);
    }

    fn deliver(&self, to: HostId) {
        if let Some(host) = self.members.get(to).and_then(Member::host) {
            host.deliver();
        }
    }

    /// Schedules everything that was sent.
    fn take_outbox(&mut self) {
        let sent = std::mem::take(&mut *self.outbox.lock());
        for Sent { at, from, message } in sent {
            match message {
                Message::Request(request) => self.send_request(at, from, request),
                Message::Piece(stream, piece) => self.send_piece(at, stream, piece),
                Message::Call(call) => self.send_call(at, from, call),
                Message::Reply(number, result) => self.at(at + TICK, Event::Reply(number, result)),
                Message::Unread(number) => self.at(at + TICK, Event::Unread(number)),
                Message::Drained(is_done) => self.at(at + TICK, Event::Drained(from, is_done)),
                Message::Note(line) => self.trace.line(at, &format!("{from} {line}")),
            }
        }
    }

    fn happen(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Request { from, sent, fault, request } => self.request(from, sent, fault, request),
            Event::Answer(from, reply, answer) => {
                // The asker may have given up.
                let _ = reply.send(answer);
                self.deliver(from);
            }
            Event::Piece(number, piece) => self.piece(number, piece),
            Event::Unread(number) => self.unread(number),
            Event::Call(from, fault, call) => self.call(from, fault, call),
            Event::Reply(number, result) => self.reply(number, result),
            Event::Heard(to, reply, result) => {
                // The asker may have given up.
                let _ = reply.send(result);
                self.deliver(to);
            }
            Event::Kill(copy, ordinal) => self.kill(copy, ordinal),
            Event::Drain(copy, ordinal) => self.drain(copy, ordinal),
            Event::Drained(host, is_done) => self.drained(host, is_done),
            Event::Start(copy) => self.start(copy)?,
            Event::Freeze(copy, ordinal) => self.freeze(copy, ordinal),
            Event::Thaw(copy) => self.thaw(copy),
            Event::Jump(copy, ordinal) => self.jump(copy, ordinal),
            Event::Outage(outage) => self.cut_watches(outage),
            Event::Silence(silence) => self.falls_silent(silence),
        }
        Ok(())
    }
}

/// The trace of a world: a hash of all that happens, and the lines themselves if they are wanted.
#[derive(Default)]
struct Trace {
    hasher: DefaultHasher,
    kept: Option<Vec<String>>,
}

impl Trace {
    fn line(&mut self, now: Nanos, line: &str) {
        (now, line).hash(&mut self.hasher);
        if let Some(kept) = &mut self.kept {
            let (seconds, milliseconds) = (now / SECOND, now % SECOND / TICK);
            kept.push(format!("{seconds:>8}.{milliseconds:03} {line}"));
        }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
