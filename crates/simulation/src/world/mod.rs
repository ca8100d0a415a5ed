//! A world: the API with its controllers, copies of the program, and actors, each on a host; and the loop that
//! schedules every message.

mod calls;
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

use self::{disasters::Ways, judge::AtRest};
use crate::{
    actor::Script,
    autoscaler,
    chance::Chance,
    controllers::{self, Driver},
    copy::Copy,
    denials::Denials,
    entropy::{self, Nanos, SECOND},
    faults::{CallFault, Faults, RequestFault},
    habits::Habits,
    host::{Host, TICK},
    kinds,
    ledger::{Author, Check, Ledger},
    network::{ApiRequest, Body, Call, HostId, Message, Port, RpcResult, Sent},
    operator,
    outages::Outage,
    overloads::Overloads,
    panics, people,
    plan::{Plan, Report},
    rights::Rights,
    setup,
    shortage::Shortage,
    tasks::{self, Scheduler},
    tenant,
    workloads::{self, Waitlist},
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
        panics::record();
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
}

/// A call under way.
struct Calling {
    from: HostId,
    copy: usize,
    fault: Option<CallFault>,
    /// True if it changes something.
    is_command: bool,
    reply: oneshot::Sender<RpcResult>,
}

/// A watch under way.
struct Stream {
    to: HostId,
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
    fn new(to: HostId, name: String, pieces: mpsc::UnboundedSender<Bytes>, newest: Nanos) -> Self {
        Self { to, name, pieces, newest, sent: 0, is_silent: false, last: VecDeque::new() }
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
    streams: HashMap<u64, Stream>,
    next_stream: u64,
    calls: BTreeMap<u64, Calling>,
    next_call: u64,
    /// The number of requests that each host has sent.
    requests: HashMap<HostId, u64>,
    /// The number of calls that each host has sent.
    sent_calls: HashMap<HostId, u64>,
    trace: Trace,
    report: Report,
    ledger: Ledger,
    faults: Faults,
    rights: Rights,
    denials: Denials,
    overloads: Overloads,
    outage: Option<Outage>,
    copies: usize,
    ways: Ways,
    /// The copies that were asked to end, with the ordinal of that decision.
    draining: BTreeMap<usize, u64>,
    /// The schedulers of the copies, which outlive their kills.
    schedulers: Vec<Scheduler>,
    tasks: tasks::Shared,
    groups: Vec<setup::Group>,
    /// The hosts that don't run, with the time since when.
    frozen: BTreeMap<HostId, Nanos>,
    /// The requests that copies send at rest.
    at_rest: AtRest,
    script: Script,
    /// The Pods that fit on no Node.
    waitlist: Waitlist,
    controllers: controllers::Shared,
}

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

impl World {
    fn new(plan: Plan) -> Result<Self> {
        let cluster = Host::new(0)?;
        let chance = Chance::new(plan.seed);
        let groups = setup::groups(chance, plan.pools);
        let until = plan.seconds * SECOND;
        let api = Api::new(Clock::real());
        let drawn = if chance.of("habits", 0, 0).bool() { Habits::Any } else { Habits::Calm };
        let habits = plan.habits.unwrap_or(drawn);
        let (outbox, controllers) = (Arc::default(), controllers::Shared::default());
        let trace = Trace { kept: plan.traced.then(Vec::new), ..Trace::default() };
        let driver = cluster.enter(async {
            define_cluster_api(&api, Contract::V1Beta2)?;
            let mut driver =
                Driver::new(&api.with_unserved(), chance, until, (habits, plan.skipped.clone()), controllers.clone());
            api.load_values(setup::objects(&groups))?;
            driver.settle()?;
            anyhow::Ok(driver)
        })?;
        cluster.spawn(driver.run(Port::new(CLUSTER, &cluster, &outbox)));
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
            streams: HashMap::new(),
            next_stream: 0,
            calls: BTreeMap::new(),
            next_call: 0,
            requests: HashMap::new(),
            sent_calls: HashMap::new(),
            trace,
            report: Report::default(),
            ledger: Ledger::default(),
            faults: Faults::new(chance, until, plan.skipped.clone()),
            rights: Rights::new(chance, until),
            denials: Denials::new(chance, until),
            overloads: Overloads::new(chance, copies, until),
            outage: None,
            copies,
            ways: Ways::of(chance, copies),
            draining: BTreeMap::new(),
            schedulers,
            tasks,
            groups,
            frozen: BTreeMap::new(),
            at_rest: AtRest::default(),
            script: Script::new(plan.skipped.clone()),
            waitlist: Waitlist::default(),
            controllers,
            plan,
        };
        world.ledger.ties_with_unhealthy = controllers::ties_with_unhealthy(chance);
        world.ledger.read_only = world.ways.read_only;
        world.ledger.replaces = world.ways.replaces();
        world.ledger.calm_from = until;
        world.ledger.kinds_change = kinds::change(world.plan.seed);
        world.ledger.observe(&world.inside, Author::Controllers);
        for copy in 0..copies {
            world.members.push(Member::Dead);
            world.start_copy(copy)?;
        }
        let shortage = Shortage::of(chance, habits, until);
        world.start_actors(shortage.filter(|_| !world.plan.skipped.contains(&Shortage::DECISION)))?;
        world.plan_disasters();
        Ok(world)
    }

    /// Starts all actors.
    fn start_actors(&mut self, shortage: Option<Shortage>) -> Result<()> {
        let (seed, copies) = (self.plan.seed, self.copies);
        let script = self.script.clone();
        let pools = self.groups.iter().map(setup::Group::pool).collect();
        let (waitlist, groups) = (self.waitlist.clone(), self.groups.clone());
        let calm = self.plan.seconds * SECOND;
        let times = autoscaler::Times { calm, end: (calm + self.plan.quiet * SECOND).saturating_sub(REST) };
        self.start_actor(|port| operator::run(port, copies, seed, script.clone()))?;
        self.start_actor(|port| workloads::run(port, seed, pools, script.clone(), waitlist))?;
        self.start_actor(|port| people::run(port, seed, groups.clone(), script.clone()))?;
        // Cluster Autoscaler can't use a read-only copy.
        let written = copies - usize::from(self.ways.read_only.is_some());
        self.start_actor(|port| autoscaler::run(port, written, seed, times))?;
        // These come last, so that the numbers of all other actors stay the same.
        if tenant::comes(seed) {
            self.start_actor(|port| tenant::run(port, seed, script.clone()))?;
        }
        if kinds::change(seed) {
            self.start_actor(|port| kinds::run(port, seed, script.clone()))?;
        }
        let broken = shortage.filter(|shortage| shortage.rolls_out);
        let short = |shortage: &Shortage| {
            groups.into_iter().find(|group| group.kind == "MachineDeployment" && group.name == shortage.group)
        };
        if let Some(shortage) = broken
            && let Some(group) = short(&shortage)
        {
            self.start_actor(|port| people::break_template(port, group, shortage.from))?;
        }
        Ok(())
    }

    fn start_actor<F: Future<Output = ()> + Send + 'static>(&mut self, task: impl FnOnce(Port) -> F) -> Result<()> {
        let host = Host::new(self.now)?;
        host.spawn(task(Port::new(self.members.len(), &host, &self.outbox)));
        self.members.push(Member::Plain(host));
        Ok(())
    }

    /// Returns the host of the operator: the first one after the copies.
    fn operator(&self) -> HostId {
        1 + self.copies
    }

    /// Returns the copy that a host is or was.
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
        self.ledger.before_rest();
        let fresh = self.members.len();
        let scheduler = Scheduler::new(self.chance, self.copies, 0, BTreeSet::new(), tasks::Shared::default());
        self.members.push(self.new_copy(fresh, "fresh", scheduler, self.ways.options(self.copies))?);
        self.run_to(end)?;
        if !self.ledger.has_findings() {
            self.judge(fresh);
        }
        self.report.hash = self.trace.hasher.finish();
        self.report.lines = self.trace.kept.take().unwrap_or_default();
        self.report.findings = self.ledger.findings();
        self.report.exceptions = std::mem::take(&mut self.ledger.exceptions);
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
            self.ledger.at(self.now);
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
            self.ledger.at(self.now);
            self.ledger.foreign.append(&mut self.controllers.foreign.lock());
            self.ledger.observed.append(&mut self.controllers.observed.lock());
            self.ledger.paused(&mut self.tasks.pauses.lock());
            self.ledger.observe(&self.inside, Author::Controllers);
            for member in &self.members {
                let Member::Copy(copy) = member else { continue };
                for broken in copy.witness.broken() {
                    self.ledger.find(Check::Handlers, broken);
                }
            }
            for panic in panics::taken() {
                self.ledger.find(Check::Panic, panic);
            }
        }
        Ok(())
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
        }
        Ok(())
    }
}
