//! The path of requests, calls and their answers between hosts, and the faults on it.

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{Method, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use sandbox::http::InProcess;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tower::BoxError;

use super::{
    CLUSTER, Calling, Event, Member, Stream, World,
    disasters::{AT_WRITES, RESTARTS},
    hash,
};
use crate::{
    entropy::Nanos,
    faults::{CallFault, MADE_UP, PieceFault, RequestFault, WatchEnd, latency},
    host::TICK,
    ledger::{Answered, Author},
    network::{Answer, ApiId, ApiRequest, Body, Call, HostId, MANAGEMENT, Message, Port, RpcResult, cut},
    outages::Outage,
    setup::Group,
};

/// The number of recent chunks, of which one may be repeated after a later one.
const REPEATED: usize = 8;

impl World {
    pub(super) fn send_request(&mut self, at: Nanos, from: HostId, request: ApiRequest) {
        let ordinal = self.requests.entry(from).or_default();
        *ordinal += 1;
        let ordinal = *ordinal;
        let mut draw = self.chance.of("request", from, ordinal);
        let mut time = at + latency(&mut draw);
        let is_copy = (1..=self.copies).contains(&from);
        if let Some(copy) = self.copy_of(from) {
            self.ledger.each_of_api(request.to, |ledger| ledger.sends(copy, &request.parts, at));
            self.wake_owner(&request);
        }
        let Some(request) = self.unreached(at, from, request) else { return };
        let is_watch = InProcess::verb(&request.parts) == "watch";
        if is_copy
            && request.parts.method != Method::GET
            && !request.parts.uri.path().ends_with("/events")
            && let Some(killed_at) = self.faults.of_kill(from, ordinal, at)
        {
            self.at(killed_at, Event::Kill(from - 1, AT_WRITES + ordinal));
        }
        let fault = if is_copy { self.faults.of_request(from, ordinal, at, is_watch) } else { None };
        let out = |outage: &mut Outage| outage.of_request(from.wrapping_sub(1), &request.parts, at);
        let fault = self.outage.as_mut().and_then(out).or(fault);
        let fault = if is_copy { fault.or_else(|| self.overload(at, from, ordinal, &request)) } else { fault };
        let fault = if is_copy { fault.or(self.lost_rights(at, from, &request)) } else { fault };
        if let Some(copy) = self.copy_of(from).filter(|_| fault.is_some()) {
            self.ledger.each_of_api(request.to, |ledger| ledger.troubles(copy));
        }
        // The fault of a denied Machine comes after `troubles`, since it excuses no other work of the copy.
        let fault = if is_copy { fault.or_else(|| self.denied(at, &request)) } else { fault };
        match fault {
            Some(RequestFault::LostBefore) => {
                self.trace.line(at, &format!("{from} {} {}: lost", request.parts.method, request.parts.uri));
                self.at(time, Event::Answer(from, request.reply, Err(cut())));
                return;
            }
            Some(RequestFault::Refused(code)) => {
                self.trace
                    .line(at, &format!("{from} {} {}: refused with {code}", request.parts.method, request.parts.uri));
                if let Some(copy) = self.copy_of(from) {
                    self.ledger.each_of_api(request.to, |ledger| ledger.refuses(copy, request.parts.uri.path()));
                }
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

    /// Wakes the owner of the Cluster whose group a copy writes.
    fn wake_owner(&self, request: &ApiRequest) {
        let path = request.parts.uri.path();
        if !self.plan.fleet || request.parts.method != Method::PATCH {
            return;
        }
        let is_of = |group: &Group| path.ends_with(&group.name) && path.contains(&format!("/{}/", group.namespace));
        for cluster in self.clusters.iter().filter(|cluster| cluster.groups.iter().any(is_of)) {
            cluster.written.notify_waiters();
        }
        for owner in &self.owners {
            self.deliver(*owner);
        }
    }

    fn lost_rights(&mut self, at: Nanos, from: HostId, request: &ApiRequest) -> Option<RequestFault> {
        let operator = self.operator();
        let by_hand = self.calls.values().any(|call| call.from == operator && 1 + call.copy == from);
        let struck = self.rights.of_request(&request.parts, by_hand, at, self.faults.until);
        let Some(decision) = struck.begins else { return struck.fault };
        if !self.faults.strikes(decision) {
            self.rights.keep();
            return None;
        }
        self.trace.line(
            at,
            if self.rights.is_of_sizes() { "copies may not write sizes" } else { "copies may not write Machines" },
        );
        if let Some(restarts) = struck.restarts {
            for copy in 0..self.copies {
                self.at(restarts, Event::Kill(copy, RESTARTS + decision.ordinal));
            }
        }
        if let Some(until) = struck.controllers_until {
            let mut down_until = self.controllers.down_until.lock();
            *down_until = until.max(*down_until);
        }
        struck.fault
    }

    fn overload(&mut self, at: Nanos, from: HostId, ordinal: u64, request: &ApiRequest) -> Option<RequestFault> {
        if at >= self.faults.until {
            return None;
        }
        let strikes = |decision| self.faults.strikes(decision);
        self.overloads.of_request((from - 1, ordinal), &request.parts, at, strikes)
    }

    /// Returns the fault of a copy's request about a denied Machine.
    fn denied(&mut self, at: Nanos, request: &ApiRequest) -> Option<RequestFault> {
        self.denials.of_request(&request.parts, at, |decision| self.faults.strikes(decision))
    }

    pub(super) fn send_piece(&mut self, at: Nanos, number: u64, piece: Option<Bytes>) {
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
        // Any of the recent chunks may be repeated.
        let old = draw.usize(0..REPEATED);
        let before = stream.last.iter().rev().nth(old).or(stream.last.front()).cloned();
        stream.last.extend(piece.clone());
        if stream.last.len() > REPEATED {
            stream.last.pop_front();
        }
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
                self.ledger.each(|ledger| ledger.silences(number, time));
            }
            Some(PieceFault::Doubled) => {
                self.at(time, Event::Piece(number, piece.clone()));
                self.at(time, Event::Piece(number, piece));
            }
            Some(PieceFault::Outdated) => {
                let goes_on = piece.is_some();
                self.at(time, Event::Piece(number, piece));
                if let Some(before) = before.filter(|_| goes_on) {
                    self.ledger.each(|ledger| ledger.outdates(number));
                    self.at(time, Event::Piece(number, Some(before)));
                }
            }
            Some(PieceFault::Late(_) | PieceFault::NoBookmark) | None => self.at(time, Event::Piece(number, piece)),
        }
    }

    #[allow(clippy::too_many_lines, reason = "a request from its fault to its answer")]
    pub(super) fn request(&mut self, from: HostId, sent: Nanos, fault: Option<RequestFault>, request: ApiRequest) {
        let ApiRequest { to: id, parts, body, reply } = request;
        self.report.requests += 1;
        let verb = InProcess::verb(&parts);
        let name = name_of(verb, &parts.uri, id);
        let uri = parts.uri.clone();
        let copy = self.copy_of(from);
        let is_event = parts.method == Method::POST && parts.uri.path().ends_with("/events");
        let content = if is_event { 0 } else { hash(&body) };
        if copy.is_some() {
            self.at_rest.count(verb, is_event);
        }
        self.ledger.each_of_api(id, |ledger| ledger.arrives(&parts, sent));
        let Some(cluster) = self.members[CLUSTER].host() else { return };
        let api = self.api_of(id).clone();
        let answer = cluster.enter(async move { api.answer(parts, body) });
        self.observe(copy.map_or(Author::Foreign, Author::Copy));
        let Some(cluster) = self.members[CLUSTER].host() else { return };
        let status = answer.status().as_u16();
        // A late request may have been given up, or be of a dead copy: nobody receives the answer.
        let copy = copy.filter(|_| !reply.is_closed());
        if let Some(copy) = copy {
            self.ledger.each_of_api(id, |ledger| ledger.served(copy, verb, uri.path(), status));
            let is_lost =
                matches!(fault, Some(RequestFault::LostAfter | RequestFault::DoneBut(_) | RequestFault::Garbage));
            if !is_lost && matches!(verb, "delete" | "patch") && status == 200 {
                self.ledger.each_of_api(id, |ledger| ledger.tells(copy, uri.path()));
            }
        }
        let (parts, body) = answer.into_parts();
        let mut time = self.now + latency(&mut self.chance.of("answer", from, self.report.requests));
        if let Some(RequestFault::AnswerLate(by)) = fault {
            time += by;
        }
        let answer = if verb == "watch" && status == 200 {
            self.next_stream += 1;
            let number = self.next_stream;
            self.trace.line(self.now, &format!("{from} {name} begins as #{number}"));
            let (pieces, received) = mpsc::unbounded_channel::<Bytes>();
            let port = Port::new(CLUSTER, cluster, &self.outbox);
            let (held, mut given_up) = oneshot::channel::<()>();
            if let Some(copy) = copy {
                let query = uri.query().unwrap_or_default();
                self.ledger.each_of_api(id, |ledger| ledger.watches(copy, number, uri.path(), query));
            }
            cluster.spawn(async move {
                let mut body = body;
                loop {
                    let frame = tokio::select! {
                        biased;
                        _ = &mut given_up => return port.send(Message::Unread(number)),
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
                            break;
                        }
                    }
                }
                // On a silent connection the end doesn't arrive.
                let _ = given_up.await;
                port.send(Message::Unread(number));
            });
            self.streams.insert(number, Stream::new((from, id), name.clone(), pieces, time));
            if (1..=self.copies).contains(&from)
                && let Some((at, end)) = self.faults.of_watch(from, number, self.now)
            {
                if end == WatchEnd::Expired {
                    self.at(at, Event::Piece(number, Some(expired())));
                }
                self.at(at, Event::Piece(number, None));
            }
            // The body holds a guard, whose drop reports that it is no longer read.
            let received = stream::unfold((received, held), |(mut received, held)| async move {
                Some((received.recv().await?, (received, held)))
            });
            let body = StreamBody::new(received.map(|piece| Ok::<_, BoxError>(Frame::data(piece))));
            Response::from_parts(parts, body.boxed_unsync())
        } else {
            let body = body.collect().now_or_never().and_then(Result::ok);
            let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            self.trace.line(self.now, &format!("{from} {name} {content:016x} {status} {:016x}", hash(&body)));
            Response::from_parts(parts, whole(body))
        };
        let answer = match fault {
            Some(RequestFault::LostAfter) => Err(cut()),
            Some(RequestFault::DoneBut(code)) => Ok(refusal(code)),
            Some(RequestFault::Garbage) => Ok(Response::new(whole(Bytes::from_static(b"{\"kind\":\"Li")))),
            Some(
                RequestFault::AnswerLate(_)
                | RequestFault::Late(_)
                | RequestFault::LostBefore
                | RequestFault::Refused(_),
            )
            | None => Ok(answer),
        };
        if let Some(fault) = fault {
            self.trace.line(self.now, &format!("{from} {name}: {fault:?}"));
        }
        self.at(time, Event::Answer(from, reply, answer));
    }

    /// Removes a watch that is no longer read.
    pub(super) fn unread(&mut self, number: u64) {
        self.ledger.each(|ledger| ledger.unwatched(number));
        self.streams.remove(&number);
    }

    pub(super) fn piece(&mut self, number: u64, piece: Option<Bytes>) {
        let Some(stream) = self.streams.get(&number) else { return };
        let to = stream.to;
        let line = format!("{to} {} #{number} {:016x}", stream.name, hash(piece.as_deref().unwrap_or_default()));
        self.trace.line(self.now, &line);
        let goes_on = piece.as_ref().is_some_and(|piece| stream.pieces.send(piece.clone()).is_ok());
        if let Some(piece) = piece.filter(|_| goes_on) {
            self.ledger.each(|ledger| ledger.shown(number, &piece));
        } else {
            self.ledger.each(|ledger| ledger.unwatched(number));
            self.streams.remove(&number);
        }
        self.deliver(to);
    }
}

/// Returns the event by which the API ends a watch whose version has expired.
fn expired() -> Bytes {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": MADE_UP, "reason": "Expired",
        "code": 410,
    });
    Bytes::from(format!("{}\n", json!({"type": "ERROR", "object": status})))
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn is_bookmark(piece: &Bytes) -> bool {
    piece.starts_with(b"{\"object\"") && piece.ends_with(b"\"type\":\"BOOKMARK\"}\n")
        || piece.starts_with(b"{\"type\":\"BOOKMARK\"")
}

fn refusal(code: u16) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": MADE_UP, "reason": "Simulated", "code": code,
    });
    let mut answer = Response::new(whole(Bytes::from(status.to_string())));
    if let Ok(code) = StatusCode::from_u16(code) {
        *answer.status_mut() = code;
    }
    answer
}

fn name_of(verb: &str, uri: &Uri, api: ApiId) -> String {
    match api {
        MANAGEMENT => format!("{verb} {uri}"),
        of_workload => format!("{verb} {uri} of workload cluster {of_workload}"),
    }
}

impl World {
    pub(super) fn reply(&mut self, number: u64, result: RpcResult) {
        let Some(call) = self.calls.remove(&number) else { return };
        let code = result.as_ref().map(|answer| answer.status.code());
        self.report.calls += 1;
        self.report.commands += u64::from(call.is_command);
        self.trace.line(self.now, &format!("copy {} answers call {number}: {code:?}", call.copy));
        match &result {
            Ok(Answer { status, message, .. }) => {
                let answered = Answered { code: Some(status.code()), message, text: status.message() };
                self.ledger.answered(call.cluster, number, &answered);
            }
            Err(_) => self.ledger.of_mut(call.cluster).lost(number),
        }
        let (time, result) = match call.fault {
            Some(CallFault::LostAfter) => (self.now, Err(cut())),
            Some(CallFault::AnswerLate(by)) => (self.now + by, result),
            Some(CallFault::LostBefore | CallFault::Late(_)) | None => (self.now, result),
        };
        self.at(time, Event::Heard(call.from, call.reply, result));
    }

    pub(super) fn send_call(&mut self, at: Nanos, from: HostId, call: Call) {
        let ordinal = self.sent_calls.entry(from).or_default();
        *ordinal += 1;
        let ordinal = *ordinal;
        let mut time = at + self.chance.of("call", from, ordinal).u64(1..3) * TICK;
        let fault = self.faults.of_call(from, ordinal, at);
        if let Some(fault) = fault {
            self.trace.line(at, &format!("{from} {} of copy {}: {fault:?}", call.parts.uri.path(), call.to));
        }
        match fault {
            Some(CallFault::LostBefore) => return self.at(time, Event::Heard(from, call.reply, Err(cut()))),
            Some(CallFault::Late(by)) => time += by,
            Some(CallFault::LostAfter | CallFault::AnswerLate(_)) | None => {}
        }
        self.at(time, Event::Call(from, fault, call));
    }

    pub(super) fn call(&mut self, from: HostId, fault: Option<CallFault>, call: Call) {
        self.next_call += 1;
        let number = self.next_call;
        let Call { to, cluster, parts, body, reply } = call;
        self.trace.line(self.now, &format!("call {number} {} {:016x} of copy {to}", parts.uri.path(), hash(&body)));
        match &self.members[1 + to] {
            Member::Copy(copy) if !self.draining.contains_key(&to) => {
                self.ledger.of_mut(cluster).asked(number, to, parts.uri.path(), &body);
                let is_command = is_command(parts.uri.path());
                copy.answer(number, cluster, parts, body);
                self.calls.insert(number, Calling { from, copy: to, cluster, fault, is_command, reply });
            }
            Member::Copy(_) | Member::Plain(_) | Member::Dead => {
                let _ = reply.send(Err(cut()));
                self.deliver(from);
            }
        }
    }
}

/// Returns true for the path of a call that changes something.
fn is_command(path: &str) -> bool {
    let commands = ["NodeGroupIncreaseSize", "NodeGroupDecreaseTargetSize", "NodeGroupDeleteNodes"];
    commands.contains(&path.rsplit('/').next().unwrap_or_default())
}
