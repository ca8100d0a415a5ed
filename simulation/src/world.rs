//! A world: the API with its controllers, copies of the program, and actors, each on a host; and the loop that gives every
//! message its time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Result;
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{Method, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use parking_lot::Mutex;
use sandbox::{
    Contract,
    api::{Api, Resource, Selection},
    clock::Clock,
    define_cluster_api,
    http::{InProcess, ServerSettings},
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tower::BoxError;

use crate::{
    autoscaler,
    chance::Chance,
    controllers::{self, Driver, Habits},
    copy::Copy,
    entropy::{self, Nanos},
    faults::{Decision, Faults, PieceFault, RequestFault, latency},
    host::{Host, TICK},
    ledger::{Answered, Author, Check, Finding, Ledger},
    network::{Answer, ApiRequest, Body, Call, HostId, Message, Port, RpcResult, Sent, cut},
    operator, panics, people, setup,
    workloads::{self, Waitlist},
};

const SECOND: Nanos = 1_000_000_000;
/// How far hosts may run ahead while nothing is under way.
const QUANTUM: Nanos = SECOND;
/// The end of a world, in which the API is to be left alone.
const REST: Nanos = 300 * SECOND;
/// Cluster Autoscaler must have brought Nodes for all Pods so long after faults have ended.
const PROGRESS: Nanos = 800 * SECOND;
/// Until then the last Pods come.
const SETTLE: Nanos = 60 * SECOND;
/// How many requests a copy may send in that time, besides watches and Events.
const MOST_AT_REST: u64 = 60;

/// The API and its controllers.
const CLUSTER: HostId = 0;

/// How a world is made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// How many copies of the program; drawn from the seed if `None`.
    pub copies: Option<usize>,
    /// How long faults and commands go on, in virtual seconds.
    pub seconds: u64,
    /// How long it is quiet then.
    pub quiet: u64,
    /// The behaviour of controllers and Machines; drawn from the seed if `None`.
    pub habits: Option<Habits>,
    /// Faults that don't strike.
    pub skipped: BTreeSet<Decision>,
    /// Whether the trace is kept.
    pub traced: bool,
}

impl Plan {
    /// A world of this seed as `.ci/run` has it: 30 virtual minutes with faults, and 15 quiet ones.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self { seed, copies: None, seconds: 1800, quiet: 900, habits: None, skipped: BTreeSet::new(), traced: false }
    }
}

/// The outcome of a world.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The hash of the whole trace.
    pub hash: u64,
    /// The trace, if it was kept.
    pub lines: Vec<String>,
    /// How many calls were answered.
    pub calls: u64,
    /// How many requests reached the API.
    pub requests: u64,
    /// The rules that were broken.
    pub findings: Vec<Finding>,
    /// How often something that can't be promised was met, by its cause.
    pub exceptions: BTreeMap<&'static str, u64>,
    /// The faults that struck.
    pub struck: Vec<Decision>,
}

/// Runs a world on a thread of its own, whose chance and time are the seed's.
///
/// # Errors
/// When a runtime can't be made, or the world itself fails; a rule that is broken is in the report.
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
    Request { from: HostId, sent: Nanos, fault: Option<RequestFault>, request: ApiRequest },
    Answer(HostId, oneshot::Sender<Result<Response<Body>, BoxError>>, Result<Response<Body>, BoxError>),
    Piece(u64, Option<Bytes>),
    Call(HostId, Call),
    Reply(u64, RpcResult),
    Kill(usize, u64),
    Start(usize),
    Freeze(usize, u64),
    Thaw(usize),
    Jump(usize, u64),
}

/// A call under way.
struct Calling {
    from: HostId,
    copy: usize,
    reply: oneshot::Sender<RpcResult>,
}

/// A watch under way.
struct Stream {
    to: HostId,
    name: String,
    pieces: mpsc::UnboundedSender<Bytes>,
    /// When its newest piece arrives: none overtakes another.
    newest: Nanos,
    sent: u64,
    /// Nothing of it arrives any more.
    is_silent: bool,
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
    streams: HashMap<u64, Stream>,
    next_stream: u64,
    calls: BTreeMap<u64, Calling>,
    next_call: u64,
    /// How many requests each host has sent.
    requests: HashMap<HostId, u64>,
    trace: Trace,
    report: Report,
    ledger: Ledger,
    faults: Faults,
    copies: usize,
    groups: Vec<setup::Group>,
    /// Hosts that don't run, by until when.
    frozen: BTreeMap<HostId, Nanos>,
    /// The requests that copies send at rest.
    at_rest: u64,
    /// Set when nobody is to ask for anything any more.
    is_quiet: Arc<AtomicBool>,
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
        let groups = setup::groups(chance);
        let api = Api::new(Clock::real());
        let drawn = if chance.of("habits", 0, 0).bool() { Habits::Any } else { Habits::Calm };
        let habits = plan.habits.unwrap_or(drawn);
        let (outbox, controllers) = (Arc::default(), controllers::Shared::default());
        let trace = Trace { kept: plan.traced.then(Vec::new), ..Trace::default() };
        let driver = cluster.enter(async {
            define_cluster_api(&api, Contract::V1Beta2)?;
            let until = plan.seconds * SECOND;
            let mut driver = Driver::new(&api, chance, until, (habits, plan.skipped.clone()), controllers.clone());
            api.load_values(setup::objects(&groups))?;
            driver.settle()?;
            anyhow::Ok(driver)
        })?;
        cluster.spawn(driver.run(Port::new(CLUSTER, &cluster, &outbox)));
        let copies = plan.copies.unwrap_or_else(|| chance.of("copies", 0, 0).usize(1..4));
        let mut world = Self {
            chance,
            now: cluster.now(),
            members: vec![Member::Plain(cluster)],
            outbox,
            events: BTreeMap::new(),
            next_event: 0,
            api: InProcess::new(api, ServerSettings::default()),
            streams: HashMap::new(),
            next_stream: 0,
            calls: BTreeMap::new(),
            next_call: 0,
            requests: HashMap::new(),
            trace,
            report: Report::default(),
            ledger: Ledger::new(),
            faults: Faults::new(chance, plan.seconds * SECOND, plan.skipped.clone()),
            copies,
            groups,
            frozen: BTreeMap::new(),
            at_rest: 0,
            is_quiet: Arc::default(),
            waitlist: Waitlist::default(),
            controllers,
            plan,
        };
        world.ledger.observe(world.api.api(), Author::Controllers);
        for copy in 0..copies {
            world.members.push(Member::Dead);
            world.start_copy(copy)?;
        }
        world.start_actors()?;
        world.plan_disasters();
        Ok(world)
    }

    /// Starts everybody who uses the cluster.
    fn start_actors(&mut self) -> Result<()> {
        let (seed, copies) = (self.plan.seed, self.copies);
        let is_quiet = || Arc::clone(&self.is_quiet);
        let pools = self.groups.iter().map(setup::Group::pool).collect();
        let (waitlist, groups) = (self.waitlist.clone(), self.groups.clone());
        let calm = self.plan.seconds * SECOND;
        let times = autoscaler::Times { calm, end: (calm + self.plan.quiet * SECOND).saturating_sub(REST) };
        let (by_hand, of_workloads, of_people) = (is_quiet(), is_quiet(), is_quiet());
        self.start_actor(|port| operator::run(port, copies, seed, by_hand))?;
        self.start_actor(|port| workloads::run(port, seed, pools, of_workloads, waitlist))?;
        self.start_actor(|port| people::run(port, seed, groups, of_people))?;
        self.start_actor(|port| autoscaler::run(port, copies, seed, times))
    }

    fn start_actor<F: Future<Output = ()> + Send + 'static>(&mut self, task: impl FnOnce(Port) -> F) -> Result<()> {
        let host = Host::new(self.now)?;
        host.spawn(task(Port::new(self.members.len(), &host, &self.outbox)));
        self.members.push(Member::Plain(host));
        Ok(())
    }

    /// The copy that a host is or was.
    fn copy_of(&self, host: HostId) -> Option<usize> {
        let is_copy = (1..=self.copies).contains(&host) || matches!(self.members.get(host), Some(Member::Copy(_)));
        is_copy.then(|| host - 1)
    }

    /// Draws when copies are killed or frozen, and when their clocks jump.
    fn plan_disasters(&mut self) {
        let most = [0, 2, 6][self.chance.of("disasters", 0, 0).usize(0..3)];
        for copy in 0..self.copies {
            for (what, event) in
                [("kill", Event::Kill as fn(usize, u64) -> Event), ("freeze", Event::Freeze), ("jump", Event::Jump)]
            {
                let mut draw = self.chance.of(what, copy, 0);
                for ordinal in 0..draw.u64(0..=most) {
                    let at = draw.u64(0..self.plan.seconds * 1000) * TICK;
                    self.at(at, event(copy, ordinal));
                }
            }
        }
    }

    fn start_copy(&mut self, copy: usize) -> Result<()> {
        let id = 1 + copy;
        let host = Host::new(self.now)?;
        let port = Port::new(id, &host, &self.outbox);
        self.frozen.remove(&id);
        self.members[id] = Member::Copy(Box::new(Copy::start(host, port, &format!("copy-{copy}"))));
        Ok(())
    }

    fn run(mut self) -> Result<Report> {
        let chaos = self.plan.seconds * SECOND;
        self.run_to(chaos)?;
        self.is_quiet.store(true, Ordering::Relaxed);
        let end = chaos + self.plan.quiet * SECOND;
        self.run_to(end.saturating_sub(REST))?;
        self.at_rest = 0;
        let fresh = self.members.len();
        self.members.push(Member::Dead);
        let host = Host::new(self.now)?;
        let port = Port::new(fresh, &host, &self.outbox);
        self.members[fresh] = Member::Copy(Box::new(Copy::start(host, port, "fresh")));
        self.run_to(end)?;
        if !self.ledger.has_findings() {
            self.judge(fresh);
        }
        self.report.hash = self.trace.hasher.finish();
        self.report.lines = self.trace.kept.take().unwrap_or_default();
        self.report.findings = self.ledger.findings();
        self.report.exceptions = std::mem::take(&mut self.ledger.exceptions);
        self.report.struck = std::mem::take(&mut self.faults.struck);
        self.report.struck.append(&mut self.controllers.struck.lock());
        Ok(self.report)
    }

    /// Goes on to a time; a world that has broken a rule goes no further.
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
            self.ledger.observe(self.api.api(), Author::Controllers);
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

    /// Checks the quiet end.
    fn judge(&mut self, fresh: HostId) {
        self.ledger.at_rest();
        self.judge_progress();
        self.judge_witnesses();
        let most = u64::try_from(self.copies + 1).unwrap_or(1) * MOST_AT_REST;
        if self.at_rest > most {
            let requests = self.at_rest;
            self.ledger.find(Check::QuietApi, format!("{requests} requests in the last {} s", REST / SECOND));
        }
        let answers: Vec<_> = self
            .members
            .iter()
            .enumerate()
            .filter_map(|(id, member)| match member {
                Member::Copy(copy) => Some((id, copy.answers())),
                Member::Plain(_) | Member::Dead => None,
            })
            .collect();
        let expected = answers.iter().find(|(id, _)| *id == fresh).map(|(_, answers)| answers.clone());
        for (id, answers) in answers {
            match (&answers, &expected) {
                (Err(status), _) => {
                    self.ledger.find(Check::RefreshHealed, format!("copy {} answers {status:?}", id - 1));
                }
                (Ok(answers), Some(Ok(expected))) if answers != expected => {
                    let differing: Vec<_> = answers.iter().filter(|line| !expected.contains(line)).collect();
                    let missing: Vec<_> = expected.iter().filter(|line| !answers.contains(line)).collect();
                    let what = format!("copy {} answers {differing:?}, a fresh one {missing:?}", id - 1);
                    self.ledger.find(Check::LikeFresh, what);
                }
                (Ok(_), _) => {}
            }
        }
    }

    /// What handlers were told is what is there.
    fn judge_witnesses(&mut self) {
        let nodes = Resource::core("nodes");
        let there = self.api.api().list(&nodes, &Selection::default());
        let mut expected: Vec<String> =
            there.map_or_else(|_| Vec::new(), |list| list.iter().map(|node| name_of(node)).collect());
        expected.sort();
        for (id, member) in self.members.iter().enumerate() {
            let Member::Copy(copy) = member else { continue };
            let (told, held) = copy.witness.names();
            if told != expected || held != expected {
                let what = format!("of {expected:?} copy {} was told of {told:?}, and holds {held:?}", id - 1);
                self.ledger.find(Check::Handlers, what);
            }
        }
    }

    /// Pods that have waited since the faults ended, though a group that isn't at its maximum would do for them.
    fn judge_progress(&mut self) {
        let calm = self.plan.seconds * SECOND;
        let waited = self.now.saturating_sub(calm);
        if waited < PROGRESS {
            return;
        }
        for (pod, waiting) in self.waitlist.for_longer_than(waited - SETTLE, self.now) {
            let sizes = self.groups.iter().filter(|group| group.fits(waiting.cpu, &waiting.selector));
            let sizes = sizes.filter_map(|group| Some((group, self.ledger.size(&group.id())?)));
            let open: Vec<_> = sizes.filter(|(group, size)| *size < i64::from(group.max)).collect();
            if !open.is_empty() {
                let open: Vec<_> = open.iter().map(|(group, size)| format!("{} of size {size}", group.id())).collect();
                let since = (self.now - waiting.since) / SECOND;
                self.ledger.find(Check::Progress, format!("{pod} has waited for {since} s, and could run on {open:?}"));
            }
        }
    }

    /// Runs all hosts up to `limit`, or until one has sent something: who asks first, so that who answers isn't ahead.
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

    /// Gives a time to everything that was sent.
    fn take_outbox(&mut self) {
        let sent = std::mem::take(&mut *self.outbox.lock());
        for Sent { at, from, message } in sent {
            match message {
                Message::Request(request) => self.send_request(at, from, request),
                Message::Piece(stream, piece) => self.send_piece(at, stream, piece),
                Message::Call(call) => {
                    let mut draw = self.chance.of("call", from, self.next_call);
                    self.at(at + draw.u64(1..3) * TICK, Event::Call(from, call));
                }
                Message::Reply(number, result) => self.at(at + TICK, Event::Reply(number, result)),
                Message::Note(line) => self.trace.line(at, &format!("{from} {line}")),
            }
        }
    }

    fn send_request(&mut self, at: Nanos, from: HostId, request: ApiRequest) {
        let ordinal = self.requests.entry(from).or_default();
        *ordinal += 1;
        let ordinal = *ordinal;
        let mut draw = self.chance.of("request", from, ordinal);
        let mut time = at + latency(&mut draw);
        let is_copy = (1..=self.copies).contains(&from);
        if let Some(copy) = self.copy_of(from) {
            self.ledger.sends(copy, &request.parts, at);
        }
        let is_watch = InProcess::verb(&request.parts) == "watch";
        let fault = if is_copy { self.faults.of_request(from, ordinal, at, is_watch) } else { None };
        match fault {
            Some(RequestFault::LostBefore) => {
                self.trace.line(at, &format!("{from} {} {}: lost", request.parts.method, request.parts.uri));
                self.at(time, Event::Answer(from, request.reply, Err(cut())));
                return;
            }
            Some(RequestFault::Refused(code)) => {
                self.trace
                    .line(at, &format!("{from} {} {}: refused with {code}", request.parts.method, request.parts.uri));
                self.at(time, Event::Answer(from, request.reply, Ok(refusal(code))));
                return;
            }
            Some(RequestFault::Late(by)) => time += by,
            Some(
                RequestFault::AnswerLate(_)
                | RequestFault::LostAfter
                | RequestFault::DoneBut(_)
                | RequestFault::Garbage,
            )
            | None => {}
        }
        self.at(time, Event::Request { from, sent: at, fault, request });
    }

    fn send_piece(&mut self, at: Nanos, number: u64, piece: Option<Bytes>) {
        let Some(stream) = self.streams.get_mut(&number).filter(|stream| !stream.is_silent) else { return };
        stream.sent += 1;
        let (to, ordinal) = (stream.to, number << 24 | stream.sent);
        let fault = if (1..=self.copies).contains(&to) { self.faults.of_piece(to, ordinal, at) } else { None };
        let mut draw = self.chance.of("piece", to, ordinal);
        let mut time = (at + latency(&mut draw)).max(stream.newest);
        if let Some(PieceFault::Late(by)) = fault {
            time += by;
        }
        stream.newest = time;
        if let Some(fault) = fault {
            let name = stream.name.clone();
            self.trace.line(at, &format!("{to} {name} #{number}: {fault:?}"));
        }
        match fault {
            Some(PieceFault::Cut) => self.at(time, Event::Piece(number, None)),
            Some(PieceFault::NoBookmark) if piece.as_ref().is_some_and(is_bookmark) => {}
            Some(PieceFault::Silent) => {
                if let Some(stream) = self.streams.get_mut(&number) {
                    stream.is_silent = true;
                }
            }
            Some(PieceFault::Doubled) => {
                self.at(time, Event::Piece(number, piece.clone()));
                self.at(time, Event::Piece(number, piece));
            }
            Some(PieceFault::Late(_) | PieceFault::NoBookmark) | None => self.at(time, Event::Piece(number, piece)),
        }
    }

    fn happen(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Request { from, sent, fault, request } => self.request(from, sent, fault, request),
            Event::Answer(from, reply, answer) => {
                // Whoever asked may have given up.
                let _ = reply.send(answer);
                self.deliver(from);
            }
            Event::Piece(number, piece) => self.piece(number, piece),
            Event::Call(from, call) => self.call(from, call),
            Event::Reply(number, result) => self.reply(number, result),
            Event::Kill(copy, ordinal) => self.kill(copy, ordinal),
            Event::Start(copy) => {
                self.trace.line(self.now, &format!("copy {copy} starts"));
                self.start_copy(copy)?;
            }
            Event::Freeze(copy, ordinal) => {
                let decision = Decision { what: "freeze", actor: copy, ordinal };
                if self.faults.strikes(decision) {
                    let seconds = self.chance.of("frozen for", copy, ordinal).u64(1..90);
                    self.trace.line(self.now, &format!("copy {copy} stands still for {seconds} s"));
                    self.frozen.insert(1 + copy, self.now);
                    self.at(self.now + seconds * SECOND, Event::Thaw(copy));
                }
            }
            Event::Thaw(copy) => {
                if self.frozen.remove(&(1 + copy)).is_some()
                    && let Some(host) = self.members[1 + copy].host()
                {
                    host.jump(self.now);
                }
            }
            Event::Jump(copy, ordinal) => {
                let decision = Decision { what: "jump", actor: copy, ordinal };
                if self.faults.strikes(decision)
                    && let Member::Copy(copy) = &mut self.members[1 + copy]
                {
                    let by = self.chance.of("jumps by", decision.actor, ordinal).i64(-600..600);
                    copy.host.skew(by * SECOND.cast_signed());
                    self.ledger.clocks_jump = true;
                    self.trace.line(self.now, &format!("the clock of copy {} is {by} s off", decision.actor));
                }
            }
        }
        Ok(())
    }

    fn kill(&mut self, copy: usize, ordinal: u64) {
        if !self.faults.strikes(Decision { what: "kill", actor: copy, ordinal })
            || matches!(self.members[1 + copy], Member::Dead)
        {
            return;
        }
        self.trace.line(self.now, &format!("copy {copy} is killed"));
        self.members[1 + copy] = Member::Dead;
        self.ledger.killed(copy);
        let lost: Vec<u64> =
            self.calls.iter().filter(|(_, call)| call.copy == copy).map(|(number, _)| *number).collect();
        for number in lost {
            self.ledger.lost(number);
            if let Some(call) = self.calls.remove(&number) {
                drop(call.reply);
                self.deliver(call.from);
            }
        }
        self.streams.retain(|_, stream| stream.to != 1 + copy);
        let seconds = self.chance.of("restart", copy, ordinal).u64(1..40);
        self.at(self.now + seconds * SECOND, Event::Start(copy));
    }

    fn reply(&mut self, number: u64, result: RpcResult) {
        let Some(call) = self.calls.remove(&number) else { return };
        let code = result.as_ref().map(Answer::code);
        self.report.calls += 1;
        self.trace.line(self.now, &format!("copy {} answers call {number}: {code:?}", call.copy));
        match &result {
            Ok(answer) => {
                self.ledger.answered(number, &Answered { code: Some(answer.code()), message: &answer.message });
            }
            Err(_) => self.ledger.lost(number),
        }
        // Whoever asked may have given up.
        let _ = call.reply.send(result);
        self.deliver(call.from);
    }

    fn request(&mut self, from: HostId, sent: Nanos, fault: Option<RequestFault>, request: ApiRequest) {
        let ApiRequest { parts, body, reply } = request;
        self.report.requests += 1;
        let verb = InProcess::verb(&parts);
        let name = format!("{verb} {}", parts.uri);
        let copy = self.copy_of(from);
        let is_event = parts.method == Method::POST && parts.uri.path().ends_with("/events");
        let content = if is_event { 0 } else { hash(&body) };
        if copy.is_some() && verb != "watch" && !is_event {
            self.at_rest += 1;
        }
        self.ledger.arrives(&parts, sent);
        let Some(cluster) = self.members[CLUSTER].host() else { return };
        let api = self.api.clone();
        let answer = cluster.enter(async move { api.answer(parts, body) });
        self.ledger.observe(self.api.api(), copy.map_or(Author::Foreign, Author::Copy));
        let status = answer.status().as_u16();
        let (parts, body) = answer.into_parts();
        let answer = if verb == "watch" && status == 200 {
            self.next_stream += 1;
            let number = self.next_stream;
            let (pieces, received) = mpsc::unbounded_channel::<Bytes>();
            let port = Port::new(CLUSTER, cluster, &self.outbox);
            let open = pieces.clone();
            cluster.spawn(async move {
                let mut body = body;
                loop {
                    let frame = tokio::select! {
                        biased;
                        () = open.closed() => return,
                        frame = body.frame() => frame,
                    };
                    match frame {
                        Some(Ok(frame)) => {
                            if let Ok(piece) = frame.into_data() {
                                port.send(Message::Piece(number, Some(piece)));
                            }
                        }
                        Some(Err(_)) | None => {
                            port.send(Message::Piece(number, None));
                            return;
                        }
                    }
                }
            });
            self.streams.insert(
                number,
                Stream { to: from, name: name.clone(), pieces, newest: self.now, sent: 0, is_silent: false },
            );
            let received =
                stream::unfold(received, |mut received| async move { Some((received.recv().await?, received)) });
            let body = StreamBody::new(received.map(|piece| Ok::<_, BoxError>(Frame::data(piece))));
            Response::from_parts(parts, body.boxed_unsync())
        } else {
            let body = body.collect().now_or_never().and_then(Result::ok);
            let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            self.trace.line(self.now, &format!("{from} {name} {content:016x} {status} {:016x}", hash(&body)));
            Response::from_parts(parts, Full::new(body).map_err(|never| match never {}).boxed_unsync())
        };
        let mut time = self.now + latency(&mut self.chance.of("answer", from, self.report.requests));
        let answer = match fault {
            Some(RequestFault::LostAfter) => Err(cut()),
            Some(RequestFault::DoneBut(code)) => Ok(refusal(code)),
            Some(RequestFault::Garbage) => Ok(Response::new(
                Full::new(Bytes::from_static(b"{\"kind\":\"Li")).map_err(|never| match never {}).boxed_unsync(),
            )),
            Some(RequestFault::AnswerLate(by)) => {
                time += by;
                Ok(answer)
            }
            Some(RequestFault::Late(_) | RequestFault::LostBefore | RequestFault::Refused(_)) | None => Ok(answer),
        };
        if let Some(fault) = fault {
            self.trace.line(self.now, &format!("{from} {name}: {fault:?}"));
        }
        self.at(time, Event::Answer(from, reply, answer));
    }

    fn piece(&mut self, number: u64, piece: Option<Bytes>) {
        let Some(stream) = self.streams.get(&number) else { return };
        let to = stream.to;
        let line = format!("{to} {} #{number} {:016x}", stream.name, hash(piece.as_deref().unwrap_or_default()));
        self.trace.line(self.now, &line);
        let goes_on = piece.is_some_and(|piece| stream.pieces.send(piece).is_ok());
        if !goes_on {
            self.streams.remove(&number);
        }
        self.deliver(to);
    }

    fn call(&mut self, from: HostId, call: Call) {
        self.next_call += 1;
        let number = self.next_call;
        let Call { to, parts, body, reply } = call;
        self.trace.line(self.now, &format!("call {number} {} {:016x} of copy {to}", parts.uri.path(), hash(&body)));
        match &self.members[1 + to] {
            Member::Copy(copy) => {
                self.ledger.asked(number, to, parts.uri.path(), &body);
                copy.answer(number, parts, body);
                self.calls.insert(number, Calling { from, copy: to, reply });
            }
            Member::Plain(_) | Member::Dead => {
                let _ = reply.send(Err(cut()));
                self.deliver(from);
            }
        }
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn is_bookmark(piece: &Bytes) -> bool {
    piece.starts_with(b"{\"object\"") && piece.ends_with(b"\"type\":\"BOOKMARK\"}\n")
        || piece.starts_with(b"{\"type\":\"BOOKMARK\"")
}

/// A Status of this code that is made up on the way.
fn refusal(code: u16) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "made up by the simulation", "reason": "Simulated", "code": code,
    });
    let mut answer =
        Response::new(Full::new(Bytes::from(status.to_string())).map_err(|never| match never {}).boxed_unsync());
    if let Ok(code) = StatusCode::from_u16(code) {
        *answer.status_mut() = code;
    }
    answer
}
