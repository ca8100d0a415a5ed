//! Events against a stub API server: which are posted, counted in a series, or dropped.

use std::collections::VecDeque;

use arcstr::ArcStr;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use prometheus_client::{encoding::text::encode, registry::Registry};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::Wait;
use tokio::{
    runtime::Handle,
    time::{Instant, advance, sleep},
};

use super::*;
use crate::{
    MayWrite, Scale, ScaleError,
    fake::{self, Fault},
    tests::held,
};

/// Longer than anything here takes, on a clock that advances by itself when all tasks are idle.
const LONG: Duration = Duration::from_secs(3600);

/// A stub that accepts Events. Each code answers one call, and all later calls succeed.
#[derive(Clone, Default)]
struct Server {
    /// Method, path, body.
    calls: Arc<Mutex<Vec<(String, String, Value)>>>,
    codes: Arc<Mutex<VecDeque<u16>>>,
}

impl Server {
    fn failing(codes: &[u16]) -> Self {
        Self { codes: Arc::new(Mutex::new(codes.iter().copied().collect())), ..Self::default() }
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let (head, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect_bytes().await?)?;
        self.calls.lock().push((head.method.to_string(), head.uri.path().to_owned(), body.clone()));
        let code = self.codes.lock().pop_front().unwrap_or(200);
        let answer = if code == 200 { body } else { fake::status(code, "no events for you") };
        // The answer to a patch may be any Event: nothing but its form is read.
        let answer = if answer["metadata"].is_object() || code != 200 { answer } else { json!({"metadata": {}}) };
        let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
        *response.status_mut() = StatusCode::from_u16(code)?;
        Ok(response)
    }

    fn calls(&self) -> Vec<(String, String, Value)> {
        self.calls.lock().clone()
    }

    /// Returns the method and content of each call: the note of a new Event, the count of a series.
    fn said(&self) -> Vec<String> {
        let said = |(method, _, body): &(String, String, Value)| match method.as_str() {
            "POST" => format!("{}: {}", body["reason"].as_str().unwrap(), body["note"].as_str().unwrap()),
            _ => format!("{method} count {}", body["series"]["count"]),
        };
        self.calls().iter().map(said).collect()
    }
}

struct World {
    server: Server,
    recorder: EventRecorder,
    registry: Registry,
}

impl World {
    fn new(server: Server) -> Self {
        let mut registry = Registry::default();
        let metrics = ScaleMetrics::register(&mut registry);
        let calls = server.clone();
        let client = Client::new(tower::service_fn(move |request| calls.clone().serve(request)), "default");
        let resources = Arc::new(ArcSwapOption::from_pointee(fake::resources()));
        let recorder = EventRecorder::start(client, resources, "pod-0", metrics, Handle::current());
        Self { server, recorder, registry }
    }

    fn record(&self, content: EventContent) {
        self.recorder.record(&fake::group(), &"uid-1".into(), content);
    }

    /// Waits until this number of calls has arrived.
    async fn until_calls(&self, count: usize) {
        let wait = Wait::new("calls").every(Duration::from_millis(1));
        wait.condition(|| self.server.calls.lock().len() >= count).await;
    }

    fn counted(&self, result: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let name = format!("events_total{{result=\"{result}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    }
}

fn up() -> EventContent {
    EventContent::scaled(2, 5, &[])
}

fn refused(why: &str) -> EventContent {
    EventContent::of_error(false, &ScaleError::FailedPrecondition(why.to_owned())).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_provokes_events_has_a_limit_of_its_own() {
    let world = World::new(Server::default());
    let (noisy, quiet) = (world.recorder.of_one_of_many(), world.recorder.of_one_of_many());
    let group = |number: u32| GroupId::parse(&format!("MachineDeployment/team-a/g{number}")).unwrap();
    for number in 0..1_000 {
        noisy.record(&group(number), &format!("uid-{number}").as_str().into(), up());
    }
    quiet.record(&group(0), &"of-another".into(), up());
    world.recorder.end().await;
    assert_eq!((world.server.calls().len(), world.counted("limited"), world.counted("dropped")), (21, 980, 0));
    assert!(world.server.calls().iter().any(|(_, _, event)| event["regarding"]["uid"] == "of-another"));
}

#[tokio::test(start_paused = true)]
async fn an_event_stands_on_the_group_and_says_who_what_and_when() {
    let world = World::new(Server::default());
    world.record(up());
    world.recorder.end().await;
    let calls = world.server.calls();
    let [(method, path, event)] = calls.as_slice() else { panic!("{calls:?}") };
    assert_eq!((method.as_str(), path.as_str()), ("POST", "/apis/events.k8s.io/v1/namespaces/team-a/events"));
    let regarding = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "namespace": "team-a",
        "name": "workers", "uid": "uid-1",
    });
    assert_eq!(event["regarding"], regarding);
    let texts = ["type", "reason", "action", "note", "reportingController", "reportingInstance"];
    let expected = ["Normal", "ScaledUp", "ScaleUp", "2→5", "capi-autoscaler-provider", "pod-0"];
    assert_eq!(texts.map(|field| event[field].as_str().unwrap()), expected);
    assert!(event["eventTime"].as_str().unwrap().parse::<Timestamp>().is_ok());
    assert!(event["metadata"]["name"].as_str().unwrap().starts_with("workers."));
    assert_eq!(world.counted("sent"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_again_begins_a_series_that_is_counted_every_half_minute() {
    let world = World::new(Server::default());
    for _ in 0..50 {
        world.record(refused("rolling out"));
    }
    world.until_calls(2).await;
    assert_eq!(world.server.said(), ["ScaleDownRefused: rolling out", "PATCH count 2"]);
    advance(Duration::from_secs(31)).await;
    world.record(refused("rolling out"));
    world.until_calls(3).await;
    assert_eq!(world.server.said()[2], "PATCH count 51");
    world.record(refused("rolling out"));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.server.calls().len(), 3, "it is counted with a later one");
    advance(Duration::from_secs(60)).await;
    world.record(refused("rolling out"));
    world.until_calls(4).await;
    assert_eq!(world.server.said()[3], "PATCH count 53");
    let event = &world.server.calls()[0].2["metadata"]["name"];
    assert!(world.server.calls()[1].1.ends_with(event.as_str().unwrap()));
    world.recorder.end().await;
    assert_eq!((world.server.calls().len(), world.counted("sent")), (4, 53));
}

#[tokio::test(start_paused = true)]
async fn a_series_that_was_quiet_for_long_is_an_event_of_its_own() {
    let world = World::new(Server::default());
    world.record(refused("rolling out"));
    world.until_calls(1).await;
    advance(Duration::from_secs(600)).await;
    world.record(refused("rolling out"));
    world.until_calls(2).await;
    assert_eq!(world.server.said(), ["ScaleDownRefused: rolling out", "ScaleDownRefused: rolling out"]);
}

#[tokio::test(start_paused = true)]
async fn a_series_whose_event_the_api_server_has_forgotten_begins_anew() {
    let world = World::new(Server::failing(&[200, 404]));
    world.record(refused("rolling out"));
    world.until_calls(1).await;
    advance(Duration::from_secs(31)).await;
    world.record(refused("rolling out"));
    world.recorder.end().await;
    let expected = ["ScaleDownRefused: rolling out", "PATCH count 2", "ScaleDownRefused: rolling out"];
    assert_eq!(world.server.said(), expected);
    assert_eq!(world.counted("sent"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_waited_out_and_holds_up_nothing() {
    let world = World::new(Server::failing(&[403]));
    world.record(up());
    world.record(refused("below min"));
    world.until_calls(1).await;
    while world.counted("failed") < 2 {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(world.server.calls().len(), 1);
    advance(Duration::from_secs(61)).await;
    world.record(up());
    world.recorder.end().await;
    assert_eq!(world.server.said(), ["ScaledUp: 2→5", "ScaledUp: 2→5"]);
    assert_eq!((world.counted("failed"), world.counted("sent")), (2, 1));
}

#[rstest]
#[case::busy(429)]
#[case::broken(500)]
#[case::conflict(409)]
#[case::no_namespace(404)]
#[tokio::test(start_paused = true)]
async fn an_event_that_can_not_be_posted_is_counted_and_let_go(#[case] code: u16) {
    let world = World::new(Server::failing(&[code]));
    world.record(up());
    world.record(EventContent::scaled(5, 6, &[]));
    world.recorder.end().await;
    assert_eq!(world.server.said(), ["ScaledUp: 2→5", "ScaledUp: 5→6"]);
    assert_eq!((world.counted("failed"), world.counted("sent")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn events_beyond_the_queue_are_dropped_and_those_beyond_the_rate_limit_are_not_posted() {
    let world = World::new(Server::default());
    // The recorder's task doesn't run before all are recorded.
    for size in 0..1000 {
        world.record(EventContent::scaled(size, size + 1, &[]));
    }
    world.recorder.end().await;
    assert_eq!(world.server.calls().len(), 10, "a group's burst");
    assert_eq!(world.counted("dropped"), 1000 - QUEUE as u64);
    assert_eq!(world.counted("limited"), QUEUE as u64 - 10);
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_no_longer_than_it_may() {
    let client = Client::new(
        tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, tower::BoxError>>()),
        "default",
    );
    let resources = Arc::new(ArcSwapOption::from_pointee(fake::resources()));
    let recorder = EventRecorder::start(client, resources, "", ScaleMetrics::default(), Handle::current());
    recorder.record(&fake::group(), &"uid-1".into(), up());
    let started = Instant::now();
    recorder.end().await;
    assert_eq!(started.elapsed(), Duration::from_secs(1));
}

/// At the end of the program a Cluster without a command is done at once, and another one isn't.
#[tokio::test]
async fn a_cluster_that_ends_first_ends_no_events_of_others() {
    let world = World::new(Server::default());
    let tenant = || {
        let (tenant, events) = (Some(Arc::new(|| Ok(())) as Arc<dyn MayWrite>), world.recorder.of_one_of_many());
        fake::World::with(2, &[], &fake::Setup { tenant, events, ..fake::Setup::default() })
    };
    let (idle, busy) = (tenant(), tenant());
    let increase = |scale: Scale| async move { scale.increase(fake::group(), 1).await };
    let command = held(&busy, "PATCH scale", Fault::Hold, increase).await;
    idle.scale.drain(LONG).await.unwrap();
    let scale = busy.scale.clone();
    let drained = tokio::spawn(async move { scale.drain(LONG).await });
    busy.api.release();
    command.await.unwrap().unwrap();
    drained.await.unwrap().unwrap();
    world.recorder.end().await;
    let said = world.server.said();
    assert!(matches!(&said[..], [event] if event.starts_with("ScaledUp: 2→3")), "{said:?}");
    assert_eq!(world.counted("dropped"), 0);
}

#[test]
fn a_note_is_bounded_and_on_one_line() {
    let note = "a quota of\nüü ".repeat(1000);
    let event = EventContent::of_error(true, &ScaleError::Unavailable(note)).unwrap();
    assert_eq!(event.reason, EventReason::ScaleUpFailed);
    let note = super::note(&event);
    assert!(note.len() <= 1000 && note.starts_with("a quota of üü a quota") && note.ends_with('…'), "{note}");
}

/// A long message, such as that of a webhook, must not push the client out of the Event.
#[rstest]
#[case::short(18)]
#[case::as_long_as_three_names(796)]
fn a_long_note_keeps_its_client(#[case] length: usize) {
    let client = "c".repeat(length);
    let long = EventContent::of_error(true, &ScaleError::Unavailable("no quota ".repeat(1000))).unwrap();
    let note = super::note(&long.clone().requested_by(Some(&client)));
    let end = format!("… (asked for by {client})");
    assert!(note.len() <= 1000 && note.starts_with("no quota no quota") && note.ends_with(&end), "{note}");
    let whole = long.requested_by(Some(&client));
    assert!(whole.text().len() > 8_000, "the history keeps all of it");
}

#[test]
fn a_note_names_ten_machines() {
    let names: Vec<ArcStr> = (0..12).map(|n| format!("m{n}").into()).collect();
    assert_eq!(EventContent::scaled(3, 1, &names[..2]).note, "3→1: Machines m0, m1");
    let note = EventContent::scaled(20, 8, &names).note;
    assert_eq!(note, "20→8: Machines m0, m1, m2, m3, m4, m5, m6, m7, m8, m9 and 2 more");
}

#[rstest]
#[case::below_min(false, ScaleError::FailedPrecondition(String::new()), Some("ScaleDownRefused"))]
#[case::beyond_max(true, ScaleError::FailedPrecondition(String::new()), Some("ScaleUpRefused"))]
#[case::no_right(false, ScaleError::PermissionDenied(String::new()), Some("ScaleDownFailed"))]
#[case::no_answer(true, ScaleError::Unavailable(String::new()), Some("ScaleUpFailed"))]
#[case::no_sense(true, ScaleError::InvalidArgument(String::new()), None)]
#[case::unknown(false, ScaleError::NotFound(String::new()), None)]
#[case::gave_way(false, ScaleError::Aborted(String::new()), None)]
fn an_error_is_reported_where_it_is_the_groups(
    #[case] scales_up: bool,
    #[case] error: ScaleError,
    #[case] expected: Option<&str>,
) {
    let reason = EventContent::of_error(scales_up, &error).map(|content| content.reason.as_str());
    assert_eq!(reason, expected);
}

#[test]
fn every_reason_is_documented_with_its_type() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/events.md");
    let document = std::fs::read_to_string(path).unwrap();
    let rows: Vec<_> = document.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows.len(), EventReason::ALL.len());
    for reason in EventReason::ALL {
        let row = format!("| `{}` | {} | ", reason.as_str(), reason.kind().1);
        assert!(rows.iter().any(|line| line.starts_with(&row)), "{row} isn't there");
    }
}

fn group(name: &str) -> GroupId {
    GroupId::parse(&format!("MachineDeployment/team-a/{name}")).unwrap()
}

fn taken(limit: &mut Limit, name: &str, tries: u32, now: Instant) -> usize {
    (0..tries).filter(|_| limit.take(&group(name), now)).count()
}

#[test]
fn a_group_has_a_burst_and_then_one_every_half_minute() {
    let now = Instant::now();
    let mut limit = Limit::new(now);
    assert_eq!(taken(&mut limit, "a", 100, now), 10);
    assert_eq!(taken(&mut limit, "a", 100, now + Duration::from_secs(29)), 0);
    assert_eq!(taken(&mut limit, "a", 100, now + Duration::from_secs(95)), 3);
    assert_eq!(taken(&mut limit, "a", 100, now + Duration::from_secs(4000)), 10, "no more than a burst is saved up");
}

#[test]
fn all_together_have_a_limit_too() {
    let now = Instant::now();
    let mut limit = Limit::new(now);
    let all = |limit: &mut Limit, now| (0..100).map(|n| taken(limit, &format!("g{n}"), 1, now)).sum::<usize>();
    assert_eq!(all(&mut limit, now), 50);
    assert_eq!(all(&mut limit, now + Duration::from_secs(1)), 5);
}

#[test]
fn quiet_groups_are_forgotten() {
    let start = Instant::now();
    let mut limit = Limit::new(start);
    for n in 0..5000_u32 {
        let _ = limit.take(&group(&format!("g{n}")), start + Duration::from_secs(1) * n);
    }
    assert!(limit.groups.len() <= MANY, "{}", limit.groups.len());
}
