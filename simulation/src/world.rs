//! A world: the API with its controllers, copies of the program, and actors, each on a host; and the loop that gives every
//! message its time.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use anyhow::Result;
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{Method, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use parking_lot::Mutex;
use sandbox::{
    Contract, Settings, Simulation,
    api::Api,
    clock::Clock,
    define_cluster_api,
    http::{InProcess, ServerSettings},
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tower::BoxError;

use crate::{
    chance::Chance,
    copy::Copy,
    entropy::{self, Nanos},
    host::{Host, TICK},
    network::{ApiRequest, Body, Call, HostId, Message, Port, RpcResult, Sent, cut},
    operator,
};

const SECOND: Nanos = 1_000_000_000;
/// How far hosts may run ahead while nothing is under way.
const QUANTUM: Nanos = SECOND / 10;

/// The API and its controllers.
const CLUSTER: HostId = 0;

/// How a world is made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// How many copies of the program.
    pub copies: usize,
    /// How long, in virtual seconds.
    pub seconds: u64,
    /// Whether the trace is kept.
    pub traced: bool,
}

/// What came of a world.
#[derive(Clone, Debug)]
pub struct Report {
    /// The hash of the whole trace.
    pub hash: u64,
    /// The trace, if it was kept.
    pub lines: Vec<String>,
    /// How many calls were answered.
    pub calls: u64,
    /// How many requests reached the API.
    pub requests: u64,
}

/// Runs a world on a thread of its own, whose chance and time are the seed's.
pub fn run(plan: Plan) -> Result<Report> {
    let thread = std::thread::spawn(move || {
        entropy::seed(plan.seed);
        World::new(plan)?.run()
    });
    thread.join().map_err(|_| anyhow::anyhow!("the world panicked"))?
}

enum Event {
    Request(HostId, ApiRequest),
    Answer(HostId, oneshot::Sender<Result<Response<Body>, BoxError>>, Result<Response<Body>, BoxError>),
    Piece(u64, Option<Bytes>),
    Call(Call),
    Reply(u64, RpcResult),
    Kill(usize),
    Start(usize),
}

/// A watch under way.
struct Stream {
    to: HostId,
    name: String,
    pieces: mpsc::UnboundedSender<Bytes>,
    /// When its newest piece arrives: none overtakes another.
    newest: Nanos,
    sent: u64,
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
    calls: HashMap<u64, (usize, oneshot::Sender<RpcResult>)>,
    next_call: u64,
    /// How many requests each host has sent.
    requests: HashMap<HostId, u64>,
    trace: Trace,
    report: Report,
    _controllers: Simulation,
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
            kept.push(format!("{:>12.3} {line}", now as f64 / SECOND as f64));
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
        let api = Api::new(Clock::real());
        let controllers = cluster.enter(async {
            define_cluster_api(&api, Contract::V1Beta2)?;
            let controllers = Simulation::start(&api, &api, Clock::real(), Settings::default());
            api.load_values(objects())?;
            controllers.settle().await;
            anyhow::Ok(controllers)
        })?;
        let trace = Trace { kept: plan.traced.then(Vec::new), ..Trace::default() };
        let mut world = Self {
            chance: Chance::new(plan.seed),
            now: cluster.now(),
            members: vec![Member::Plain(cluster)],
            outbox: Arc::default(),
            events: BTreeMap::new(),
            next_event: 0,
            api: InProcess::new(api, ServerSettings::default()),
            streams: HashMap::new(),
            next_stream: 0,
            calls: HashMap::new(),
            next_call: 0,
            requests: HashMap::new(),
            trace,
            report: Report { hash: 0, lines: Vec::new(), calls: 0, requests: 0 },
            _controllers: controllers,
            plan,
        };
        for copy in 0..world.plan.copies {
            world.members.push(Member::Dead);
            world.start_copy(copy)?;
        }
        let host = Host::new(world.now)?;
        let port = Port::new(world.members.len(), &host, &world.outbox);
        host.spawn(operator::run(port, world.plan.copies, world.plan.seed));
        world.members.push(Member::Plain(host));
        for copy in 0..world.plan.copies {
            let mut draw = world.chance.of("kills", copy, 0);
            for _ in 0..world.plan.seconds / 300 {
                let at = draw.u64(0..world.plan.seconds) * SECOND;
                world.at(at, Event::Kill(copy));
            }
        }
        Ok(world)
    }

    fn start_copy(&mut self, copy: usize) -> Result<()> {
        let id = 1 + copy;
        let host = Host::new(self.now)?;
        let port = Port::new(id, &host, &self.outbox);
        self.members[id] = Member::Copy(Box::new(Copy::start(host, port, &format!("copy-{copy}"))));
        Ok(())
    }

    fn run(mut self) -> Result<Report> {
        let end = self.plan.seconds * SECOND;
        while self.now < end {
            self.take_outbox();
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
        }
        self.report.hash = self.trace.hasher.finish();
        self.report.lines = self.trace.kept.take().unwrap_or_default();
        Ok(self.report)
    }

    /// Runs all hosts up to `limit`, or until one has sent something.
    fn run_hosts(&mut self, limit: Nanos) {
        let mut limit = limit;
        for member in &self.members {
            let Some(host) = member.host() else { continue };
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
                Message::Request(request) => {
                    let ordinal = self.requests.entry(from).or_default();
                    *ordinal += 1;
                    let mut draw = self.chance.of("request", from, *ordinal);
                    let delay = latency(&mut draw);
                    self.at(at + delay, Event::Request(from, request));
                }
                Message::Piece(stream, piece) => {
                    let Some(known) = self.streams.get_mut(&stream) else { continue };
                    known.sent += 1;
                    let mut draw = self.chance.of("piece", known.to, stream << 32 | known.sent);
                    let time = (at + latency(&mut draw)).max(known.newest);
                    known.newest = time;
                    self.at(time, Event::Piece(stream, piece));
                }
                Message::Call(call) => {
                    let mut draw = self.chance.of("call", from, self.next_call);
                    self.at(at + draw.u64(1..3) * TICK, Event::Call(call));
                }
                Message::Reply(number, result) => self.at(at + TICK, Event::Reply(number, result)),
                Message::Note(line) => self.trace.line(at, &format!("{from} {line}")),
            }
        }
    }

    fn happen(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Request(from, request) => self.request(from, request),
            Event::Answer(from, reply, answer) => {
                // Whoever asked may have given up.
                let _ = reply.send(answer);
                self.deliver(from);
            }
            Event::Piece(number, piece) => self.piece(number, piece),
            Event::Call(call) => self.call(call),
            Event::Reply(number, result) => {
                if let Some((copy, reply)) = self.calls.remove(&number) {
                    let code = result.as_ref().map_or_else(ToString::to_string, |answer| {
                        let trailers = answer.body().trailers();
                        let code = answer.headers().get("grpc-status").or_else(|| trailers?.get("grpc-status"));
                        code.and_then(|code| code.to_str().ok()).unwrap_or("0").to_owned()
                    });
                    self.report.calls += 1;
                    self.trace.line(self.now, &format!("copy {copy} answers call {number}: {code}"));
                    let _ = reply.send(result);
                    self.deliver(self.members.len() - 1);
                }
            }
            Event::Kill(copy) => {
                self.trace.line(self.now, &format!("copy {copy} is killed"));
                self.members[1 + copy] = Member::Dead;
                self.calls.retain(|_, (of, _)| *of != copy);
                self.deliver(self.members.len() - 1);
                self.streams.retain(|_, stream| stream.to != 1 + copy);
                let mut draw = self.chance.of("restart", copy, self.next_event);
                self.at(self.now + draw.u64(1..20) * SECOND, Event::Start(copy));
            }
            Event::Start(copy) => {
                self.trace.line(self.now, &format!("copy {copy} starts"));
                self.start_copy(copy)?;
            }
        }
        Ok(())
    }

    fn request(&mut self, from: HostId, request: ApiRequest) {
        let ApiRequest { parts, body, reply } = request;
        self.report.requests += 1;
        let verb = InProcess::verb(&parts);
        let name = format!("{verb} {}", parts.uri);
        let is_event = parts.method == Method::POST && parts.uri.path().ends_with("/events");
        let sent = if is_event { 0 } else { hash(&body) };
        let Some(cluster) = self.members[CLUSTER].host() else { return };
        let api = self.api.clone();
        let answer = cluster.enter(async move { api.answer(parts, body) });
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
            self.streams.insert(number, Stream { to: from, name: name.clone(), pieces, newest: self.now, sent: 0 });
            let received =
                stream::unfold(received, |mut received| async move { Some((received.recv().await?, received)) });
            let body = StreamBody::new(received.map(|piece| Ok::<_, BoxError>(Frame::data(piece))));
            Response::from_parts(parts, body.boxed_unsync())
        } else {
            let body = body.collect().now_or_never().and_then(Result::ok);
            let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            self.trace.line(self.now, &format!("{from} {name} {sent:016x} {status} {:016x}", hash(&body)));
            Response::from_parts(parts, Full::new(body).map_err(|never| match never {}).boxed_unsync())
        };
        let mut draw = self.chance.of("answer", from, self.report.requests);
        self.at(self.now + latency(&mut draw), Event::Answer(from, reply, Ok(answer)));
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

    fn call(&mut self, call: Call) {
        self.next_call += 1;
        let number = self.next_call;
        let Call { to, parts, body, reply } = call;
        self.trace.line(self.now, &format!("call {number} {} {:016x} of copy {to}", parts.uri.path(), hash(&body)));
        match &self.members[1 + to] {
            Member::Copy(copy) => {
                copy.answer(number, parts, body);
                self.calls.insert(number, (to, reply));
            }
            Member::Plain(_) | Member::Dead => {
                let _ = reply.send(Err(cut()));
                self.deliver(self.members.len() - 1);
            }
        }
    }
}

/// How long a message takes: mostly some milliseconds, now and then seconds.
fn latency(draw: &mut fastrand::Rng) -> Nanos {
    let milliseconds = match draw.u32(0..100) {
        0 => draw.u64(500..4000),
        1..10 => draw.u64(20..500),
        _ => draw.u64(1..20),
    };
    milliseconds * TICK
}

/// What a world begins with.
fn objects() -> Vec<Value> {
    let template = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "DockerMachineTemplate",
        "metadata": {"name": "t", "namespace": "team-a"}, "spec": {"template": {"spec": {}}},
    });
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "prod", "namespace": "team-a"}, "spec": {"clusterNetwork": {}},
    });
    let deployment = |name: &str, replicas: u32| {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
            "metadata": {"name": name, "namespace": "team-a", "annotations": {
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "8",
                "capacity.cluster-autoscaler.kubernetes.io/cpu": "4",
                "capacity.cluster-autoscaler.kubernetes.io/memory": "16Gi",
            }},
            "spec": {"clusterName": "prod", "replicas": replicas, "selector": {"matchLabels": {"group": name}},
                "template": {"metadata": {"labels": {"group": name}}, "spec": {
                    "clusterName": "prod",
                    "bootstrap": {"dataSecretName": "b"},
                    "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerMachineTemplate", "name": "t"},
                }}},
        })
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "dockermachinetemplates.infrastructure.cluster.x-k8s.io"},
        "spec": {"group": "infrastructure.cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "DockerMachineTemplate", "listKind": "DockerMachineTemplateList", "plural": "dockermachinetemplates", "singular": "dockermachinetemplate"},
            "versions": [{"name": "v1beta2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    vec![definition, template, cluster, deployment("workers", 3), deployment("spare", 0)]
}
