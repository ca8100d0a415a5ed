//! Tests of an API server that misbehaves for one kind or one API group: its answers there never end or come too
//! slowly. The other kinds stay followed, and memory stays bounded. All bounds are tested in `shared-informer`.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use futures::{StreamExt as _, stream};
use http::{Response, Uri};
use rstest::rstest;
use rules::ProblemKind;
use serde_json::{Value, json};
use tokio::time;

use super::{GROUP, MOST_OBJECTS, WORKERS, World, annotated, fake::*, scalable, template};
use service::listen::CheckState;

const OTHERS: &str = "MachineDeployment/team-a/others";
const PIECE: usize = 64 << 10;
/// The maximum length of a page and of an event.
const LONGEST: usize = 8 << 20;

/// The misbehaviour of an API server for one kind.
#[derive(Clone, Copy, Debug)]
enum Misbehaviour {
    /// Pages of objects without an end: each has a continue token.
    Pages,
    /// A page that arrives byte by byte.
    SlowPage,
    /// Watches with an event that never ends.
    Event,
}

/// The number of bytes that were read.
#[derive(Clone, Default)]
struct Sent(Arc<AtomicUsize>);

impl Sent {
    fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn endless(&self, mut part: impl FnMut() -> String + Send + 'static) -> Response<Body> {
        let sent = self.clone();
        let parts = stream::repeat_with(move || {
            let part = part();
            sent.0.fetch_add(part.len(), Ordering::Relaxed);
            Ok::<_, Infallible>(part)
        });
        Response::new(Body::from_stream(parts))
    }

    /// Sends a byte after each pause.
    fn slow(&self, pause: Duration) -> Response<Body> {
        let sent = self.clone();
        let parts = stream::repeat("[").then(move |part| {
            let sent = sent.clone();
            async move {
                time::sleep(pause).await;
                sent.0.fetch_add(part.len(), Ordering::Relaxed);
                Ok::<_, Infallible>(part)
            }
        });
        Response::new(Body::from_stream(parts))
    }
}

fn object(number: usize) -> Value {
    let metadata = json!({"name": format!("o{number}"), "namespace": "team-a", "uid": format!("u{number}"),
        "resourceVersion": "1000"});
    json!({"metadata": metadata, "spec": {"clusterName": "stage"}})
}

fn page(items: &[Value], next: &str) -> Response<Body> {
    let page = json!({"kind": "List", "metadata": {"resourceVersion": "1000", "continue": next}, "items": items});
    Response::new(Body::from(page.to_string()))
}

impl Misbehaviour {
    /// Returns the answer to a list or watch, or `None` for that of a well-behaved API server.
    fn answer(self, uri: &Uri, sent: &Sent, made: &Arc<AtomicUsize>) -> Option<Response<Body>> {
        let query = uri.query().unwrap_or_default();
        if query.contains("sendInitialEvents") {
            return None;
        }
        let (is_watch, made) = (query.contains("watch=true"), Arc::clone(made));
        let new = move || object(made.fetch_add(1, Ordering::Relaxed));
        // A 410 makes every watch start with a list.
        if is_watch && matches!(self, Self::Pages | Self::SlowPage) {
            return Some(Response::builder().status(410).body(Body::empty()).unwrap());
        }
        match self {
            Self::Pages => {
                let objects: Vec<_> = (0..500).map(|_| new()).collect();
                let next = objects[0]["metadata"]["name"].to_string();
                Some(page(&objects, &next))
            }
            Self::SlowPage => Some(sent.slow(Duration::from_secs(5))),
            Self::Event => is_watch.then(|| sent.endless(|| "[".repeat(PIECE))),
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Pages => "there are more than 2000 objects",
            Self::SlowPage => "no answer in 60s",
            Self::Event => "an event of the watch is longer than 8388608 bytes",
        }
    }
}

/// Makes the API server misbehave for a resource from now on.
fn misbehave(api: &FakeApi, plural: &str, how: Misbehaviour) -> Sent {
    let (sent, made) = (Sent::default(), Arc::default());
    let counted = sent.clone();
    api.answer_by(plural, move |uri| how.answer(uri, &counted, &made));
    sent
}

/// Returns the maximum number of objects that an informer holds.
fn most_held(world: &World) -> usize {
    world.workload.informers().iter().map(|(_, status)| status.objects).max().unwrap_or_default()
}

/// Returns the reason for which an informer of a resource fails or last failed.
fn failure(world: &World, plural: &str) -> String {
    let informers = world.workload.informers();
    let of = informers.into_iter().find(|(_, status)| status.resource.split(['.', '/']).next() == Some(plural));
    of.and_then(|(_, status)| status.last_error).unwrap_or_default()
}

/// Groups that name a kind which was never read have a problem and keep their annotations. No other group has a
/// problem.
#[rstest]
#[case::pages(Misbehaviour::Pages)]
#[case::a_slow_page(Misbehaviour::SlowPage)]
#[tokio::test(start_paused = true)]
async fn a_template_kind_that_misbehaves_concerns_its_own_groups(#[case] how: Misbehaviour) {
    let api = FakeApi::with_capi();
    api.serve_group(GROUP, &["v1beta1"]);
    for kind in ["Bad", "Good"] {
        api.install(GROUP, &format!("{kind}Template"), &format!("{}templates", kind.to_lowercase()));
    }
    misbehave(&api, "badtemplates", how);
    api.put("machinedeployments", "workers", &annotated(GROUP, "BadTemplate"));
    api.put("machinedeployments", "others", &annotated(GROUP, "GoodTemplate"));
    api.put("goodtemplates", "t", &template("8"));
    let world = World::synced(&api).await;
    let check = "templates/BadTemplate.infrastructure.cluster.x-k8s.io";
    let says = |world: &World| matches!(world.check(check), Some((CheckState::Informational, why)) if why.contains(how.reason()));
    world.until(how.reason(), says).await;
    world.until("its problem", |world| world.problems_of(WORKERS) == [ProblemKind::Template.as_str()]).await;
    let checks = || world.check("templates/GoodTemplate.infrastructure.cluster.x-k8s.io");
    world.until("the other kind", |_| checks() == Some((CheckState::Ready, String::new()))).await;
    for round in 1..=3 {
        api.put("goodtemplates", "t", &template(&round.to_string()));
        api.put("machinedeployments", &format!("more-{round}"), &annotated(GROUP, "GoodTemplate"));
        world.until("the new group", |world| world.groups().len() == 2 + round).await;
        time::sleep(Duration::from_secs(5)).await;
        assert_eq!((world.problem().as_str(), world.problems_of(OTHERS)), ("", Vec::new()));
        assert!(world.is_ready());
        assert!(most_held(&world) <= 2 * MOST_OBJECTS + 500, "{}", most_held(&world));
    }
    api.behave("badtemplates");
    api.put("badtemplates", "t", &template("8"));
    world.until("no problem", |world| world.problems_of(WORKERS).is_empty()).await;
    assert_eq!(world.check(check), Some((CheckState::Ready, String::new())));
    world.shutdown().await;
}

/// Each kind has fewer bytes than a kind may have.
#[tokio::test(start_paused = true)]
async fn templates_share_a_limit_that_leaves_other_kinds_their_place() {
    let api = FakeApi::with_capi();
    api.serve_group(GROUP, &["v1beta1"]);
    for kind in ["Bad", "Good"] {
        api.install(GROUP, &format!("{kind}Template"), &format!("{}templates", kind.to_lowercase()));
    }
    for number in 0..150 {
        api.put("badtemplates", &format!("t{number}"), &template(&"1".repeat(16_000)));
        let mut machine = object(number);
        machine["spec"] = json!({"clusterName": "prod", "providerID": format!("cloud:///{number:016000}")});
        api.put("machines", &format!("m{number}"), &machine);
    }
    api.put("goodtemplates", "t", &template("8"));
    api.put("machinedeployments", "workers", &annotated(GROUP, "BadTemplate"));
    api.put("machinedeployments", "others", &annotated(GROUP, "GoodTemplate"));
    let world = World::synced(&api).await;
    let reason = format!("the kept fields of all infrastructure templates have more than {} bytes", MOST_OF_ALL / 5);
    let bad = "templates/BadTemplate.infrastructure.cluster.x-k8s.io";
    let says =
        |world: &World| matches!(world.check(bad), Some((CheckState::Informational, why)) if why.contains(&reason));
    world.until(&reason, says).await;
    let good = "templates/GoodTemplate.infrastructure.cluster.x-k8s.io";
    world.until("the other kind", |world| world.check(good) == Some((CheckState::Ready, String::new()))).await;
    assert_eq!(
        (world.problems_of(WORKERS), world.problems_of(OTHERS)),
        (vec![ProblemKind::Template.as_str()], Vec::new())
    );
    assert!(world.is_ready());
    world.shutdown().await;
}

/// Refresh fails for a core kind, with its name and the reason. The known objects stay, and changes of the other
/// kinds are applied.
#[rstest]
#[case::pages("machines", Misbehaviour::Pages)]
#[case::an_event("nodes", Misbehaviour::Event)]
#[tokio::test(start_paused = true)]
async fn a_core_kind_that_misbehaves_leaves_what_is_known_and_the_others_go_on(
    #[case] plural: &str,
    #[case] how: Misbehaviour,
) {
    let api = FakeApi::with_capi();
    api.put("machinedeployments", "workers", &scalable(&json!({})));
    api.put(plural, "o0", &object(0));
    let world = World::with(&api, Setup { max_staleness: Duration::ZERO, ..Setup::default() });
    world.until_ready().await;
    world.until("all watches", |_| api.watches(plural) == 1).await;
    let path = if plural == "nodes" { "/api/v1/nodes".to_owned() } else { format!("/apis/{CAPI}/v1beta2/{plural}") };
    let asked = api.asks(&path);
    let sent = misbehave(&api, plural, how);
    world.until("the reason", |world| failure(world, plural).contains(how.reason())).await;
    let name = if plural == "nodes" { "workload/nodes".to_owned() } else { format!("management/{plural}") };
    // The failure lasts for the pause before the next watch, which has a random length.
    world.until("a Refresh that names it", |world| world.problem().starts_with(&format!("{name}: "))).await;
    for round in 1..=3 {
        api.put("machinedeployments", &format!("more-{round}"), &scalable(&json!({})));
        world.until("the new group", |world| world.groups().len() == 1 + round).await;
        let problem = world.problem();
        assert!(problem.is_empty() || !problem.contains("; "), "of one kind alone: {problem}");
        assert!(most_held(&world) <= 2 * MOST_OBJECTS + 500, "{}", most_held(&world));
        time::sleep(Duration::from_secs(5)).await;
    }
    let asked = api.asks(&path) - asked;
    assert!(sent.bytes() <= asked * (LONGEST + 2 * PIECE), "{} bytes by {asked} requests", sent.bytes());
    api.behave(plural);
    world.until_ready().await;
    assert_eq!(world.groups().len(), 4);
    world.shutdown().await;
}

/// The kinds of other API groups are found nevertheless.
#[rstest]
#[case::without_end(None)]
#[case::a_byte_now_and_then(Some(Duration::from_secs(5)))]
#[tokio::test(start_paused = true)]
async fn an_api_group_whose_discovery_has_no_end_holds_up_no_other(#[case] pause: Option<Duration>) {
    const BAD: &str = "bad.example.com";
    let api = FakeApi::with_capi();
    for (group, kind, plural) in [(GROUP, "GoodTemplate", "goodtemplates"), (BAD, "BadTemplate", "badtemplates")] {
        api.serve_group(group, &["v1beta1"]);
        api.install(group, kind, plural);
    }
    let sent = Sent::default();
    let counted = sent.clone();
    let path = format!("/apis/{BAD}/v1beta1");
    api.answer_by(&path, move |_| {
        Some(pause.map_or_else(|| counted.endless(|| " ".repeat(PIECE)), |pause| counted.slow(pause)))
    });
    api.put("machinedeployments", "workers", &annotated(BAD, "BadTemplate"));
    api.put("machinedeployments", "others", &annotated(GROUP, "GoodTemplate"));
    api.put("goodtemplates", "t", &template("8"));
    let world = World::synced(&api).await;
    let good = "templates/GoodTemplate.infrastructure.cluster.x-k8s.io";
    world.until("the good kind", |world| world.check(good) == Some((CheckState::Ready, String::new()))).await;
    world.until("the bad one's problem", |world| world.problems_of(WORKERS) == [ProblemKind::Template.as_str()]).await;
    assert_eq!((world.problem().as_str(), world.problems_of(OTHERS)), ("", Vec::new()));
    // A kind that is named later is found too.
    api.install(GROUP, "LaterTemplate", "latertemplates");
    api.put("latertemplates", "t", &template("8"));
    api.put("machinedeployments", "later", &annotated(GROUP, "LaterTemplate"));
    let later = "templates/LaterTemplate.infrastructure.cluster.x-k8s.io";
    world.until("the later kind", |world| world.check(later) == Some((CheckState::Ready, String::new()))).await;
    api.behave(&path);
    world.until("the bad kind", |world| world.check("templates/BadTemplate.bad.example.com").is_some()).await;
    let asked = api.asks(&path);
    assert!(sent.bytes() <= asked * ((32 << 20) + 2 * PIECE), "{} bytes by {asked} requests", sent.bytes());
    world.shutdown().await;
}
