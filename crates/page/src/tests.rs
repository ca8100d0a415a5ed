//! The pages of a state, and the texts that they must escape.

mod clusters;

use std::collections::BTreeMap;

use rstest::rstest;
use rules::{NodeTemplate, Price, Source, Sourced, Taint, TaintEffect};

use super::{group, overview, routes::notice, shell, view::View};
use crate::state::explain::{Explained, GroupReport};
use crate::state::{
    CallsState, Check, ClusterState, Group, Head, HistoryEntry, HistoryOutcome, InformerState, Instance,
    InstanceCounts, InstanceError, InstanceState, InstanceView, LeftOutObject, Problem, ProblemKind, Program, Rollout,
    State, TlsStanding, WrittenSize,
};

/// A text that a hostile object may contain: markup, quotes that would end an attribute, and a character that reverses
/// text.
const HOSTILE: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&amp;\u{202e}\u{1b}[31m";

fn head() -> Head {
    Head {
        program: Program {
            version: "1.2.3".to_owned(),
            started_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            pod: Some("provider-7d9f-x2".to_owned()),
        },
        cluster: Some("team-a/prod".to_owned()),
        taken_at: "2026-01-01T01:00:00Z".parse().unwrap(),
        ready: true,
        ..Head::default()
    }
}

fn state() -> State {
    State {
        head: head(),
        calls: calls(4, None),
        clusters: vec![ClusterState {
            name: "management".to_owned(),
            informers: vec![InformerState {
                synced: true,
                resource: "machines".to_owned(),
                ..InformerState::default()
            }],
        }],
        ..State::default()
    }
}

fn workers() -> Group {
    Group {
        id: "MachineDeployment/team-a/workers".to_owned(),
        cluster: "prod".to_owned(),
        min_size: 1,
        size: 3,
        max_size: 5,
        counts: InstanceCounts { running: 3, ..InstanceCounts::default() },
        ..Group::default()
    }
}

fn assert_shows(page: &str, texts: &[&str]) {
    for text in texts {
        assert!(page.contains(text), "{text}: {page}");
    }
}

/// Asserts that a page shows texts of a cluster, of which none becomes markup.
fn assert_escaped(page: &str) {
    assert!(page.contains("&lt;script&gt;") && !page.contains("<script") && !page.contains("<img"), "{page}");
    assert!(!page.contains('\u{202e}') && !page.contains('\u{1b}'), "{page}");
    // No quote from a hostile text ends an attribute.
    assert!(!page.contains("\"'>"), "{page}");
}

fn calls(last_refresh_ago: u64, refused: Option<&str>) -> CallsState {
    CallsState { last_refresh_ago: Some(last_refresh_ago), last_refresh_refused: refused.map(str::to_owned) }
}

/// Returns a state with a server certificate that ends at this time.
fn certificate_until(end: &str, failing: Option<&str>) -> State {
    let tls = TlsStanding {
        server_until: end.parse().unwrap(),
        failing: failing.map(str::to_owned),
        ..TlsStanding::default()
    };
    State { tls: Some(tls), ..state() }
}

fn entry(what: &'static str, outcome: HistoryOutcome, minute: u32, text: &str) -> HistoryEntry {
    HistoryEntry {
        what: what.into(),
        outcome,
        code: None,
        text: text.to_owned(),
        first: "2026-01-01T00:00:00Z".parse().unwrap(),
        last: format!("2026-01-01T00:{minute:02}:00Z").parse().unwrap(),
        times: 2,
    }
}

fn front(state: &State) -> String {
    overview::overview(state, &[], &View::default()).into_string()
}

fn page_of(state: &State, explained: Option<&Explained>) -> String {
    group::group(state, explained, &[], &View::default()).unwrap().into_string()
}

/// Returns a state in which every text of a cluster is hostile.
fn hostile() -> (State, Explained) {
    let text = || HOSTILE.to_owned();
    let problems = || vec![Problem::new(ProblemKind::Labels, text())];
    let history = || vec![entry("increase", HistoryOutcome::Refused, 0, HOSTILE)];
    let instance = InstanceView {
        instance: Instance {
            id: text(),
            state: InstanceState::Creating,
            error: Some(InstanceError {
                code: "ProvisioningFailed".into(),
                message: text(),
                out_of_resources: true,
                sent: true,
            }),
        },
        machine: Some(text()),
        node: Some(text()),
        node_gone: false,
        created_at: None,
    };
    let group = Group {
        id: format!("MachineDeployment/team-a/{HOSTILE}"),
        cluster: text(),
        problems: problems(),
        history: history(),
        instances: Some(vec![instance]),
        rollout: Some(Rollout { message: text(), ..Rollout::default() }),
        ..workers()
    };
    let left_out = LeftOutObject {
        id: format!("MachineSet/team-a/{HOSTILE}"),
        cluster: text(),
        message: text(),
        invalid: true,
        problems: problems(),
        history: history(),
        ..LeftOutObject::default()
    };
    let source = || Source::Annotation(HOSTILE.into());
    let value = || Sourced::new(text(), source());
    let taint = Taint { key: text(), value: text(), effect: TaintEffect::NoSchedule };
    let report = GroupReport {
        id: text(),
        cluster: text(),
        invalid: true,
        size: 3,
        min_size: 1,
        max_size: 5,
        rolling_out: true,
        scales_from_zero: false,
        from_zero: None,
        not_from_zero: Some(text()),
        template: Some(NodeTemplate {
            capacity: BTreeMap::new(),
            overhead: BTreeMap::new(),
            labels: [(text(), value())].into(),
            taints: vec![Sourced::new(taint, source())],
            declared_features: vec![value()],
        }),
        options: [(text(), value())].into(),
        price_per_hour: Some(Sourced::new(Price::default(), source())),
        drivers: vec![],
        problems: problems(),
        notes: vec![text()],
    };
    let informer =
        InformerState { resource: text(), namespaces: text(), reason: Some(text()), ..InformerState::default() };
    let state = State {
        head: Head { ready: false, checks: vec![Check::pending(text(), text())], ..head() },
        calls: calls(1, Some(HOSTILE)),
        tls: Some(TlsStanding { failing: Some(text()), ..TlsStanding::default() }),
        clusters: vec![ClusterState { name: "workload".to_owned(), informers: vec![informer] }],
        groups: vec![group],
        left_out: vec![left_out],
        ..state()
    };
    (state, Explained::Group(Box::new(report)))
}

#[test]
fn no_text_of_a_cluster_becomes_markup() {
    let (state, explained) = hostile();
    let left_out = State { groups: vec![], ..state.clone() };
    let view = View::parse("q=%22%3E%3Cscript%3E").unwrap();
    let pages = [
        front(&state),
        overview::overview(&state, &[], &view).into_string(),
        page_of(&state, Some(&explained)),
        page_of(&left_out, None),
        notice(&state.head, "Not here", HOSTILE),
    ];
    for page in &pages {
        assert_escaped(page);
    }
}

#[rstest]
#[case("a;reboot")]
#[case("$(reboot)")]
#[case("--help")]
#[case("a b")]
#[case("a\nb")]
#[case("")]
fn no_command_is_shown_for_a_name_that_a_shell_reads_as_more(#[case] name: &str) {
    assert!(shell::describe("node", None, name).is_none());
    assert!(shell::describe("machine", Some(name), "m").is_none());
}

#[test]
fn a_calm_fleet_is_said_to_be_calm() {
    let page = front(&State { groups: vec![workers()], ..state() });
    assert_shows(
        &page,
        &[
            "<title>Node groups</title>",
            "Refresh 4 s ago",
            "1 kind in sync",
            "href=\"/groups/MachineDeployment/team-a/workers\"",
            ">team-a/<wbr>workers</a>",
            "<abbr title=\"MachineDeployment\">MD</abbr>",
            "aria-sort=\"ascending\"><a href=\"/?sort=-urgency\">State</a>",
            "<a href=\"/?sort=size\">Size</a>",
            "aria-label=\"size 3, 3 running, between 1 and 5\"",
            "up 1 h",
            "Cluster <b>team-a/prod</b> · Pod <b>provider-7d9f-x2</b>",
            "<a href=\"/debug/state\">",
        ],
    );
    assert!(!page.contains("badge bad") && !page.contains("badge odd"), "{page}");
    assert!(!page.contains("http-equiv"), "{page}");
}

#[rstest]
#[case::out_of_sync(
    State {
        head: Head { ready: false, checks: vec![Check::pending("workload/nodes", "forbidden: no")], ..head() },
        ..state()
    },
    &["<title>Not in sync – node groups</title>", "workload/nodes</code>: <span class=\"reason\">forbidden: no"]
)]
#[case::never_called(State { calls: CallsState::default(), ..state() }, &["no Refresh since the start", "cloud-config"])]
#[case::not_called_lately(
    State { calls: calls(600, None), ..state() },
    &["not called here", "Another replica may be", "Refresh 10 min ago"]
)]
#[case::refused_before_another_replica_was_called(
    State { calls: calls(600, Some("not ready: x")), ..state() },
    &["not called here", "Refresh 10 min ago"]
)]
#[case::refused_refresh(State { calls: calls(1, Some("not ready: x")), ..state() }, &["refused", "not ready: x"])]
#[case::expired(certificate_until("2026-01-01T00:30:00Z", None), &["expired", "ends <time", "30 min ago"])]
#[case::expires_soon(certificate_until("2026-01-03T01:00:00Z", None), &["expires soon", "in 2 d"])]
#[case::files_that_cannot_be_used(
    certificate_until("2027-01-01T00:00:00Z", Some("cert.pem: no")),
    &["valid", "new files can't be used", "cert.pem: no"]
)]
#[case::a_broken_watch(
    State {
        clusters: vec![ClusterState {
            name: "workload".to_owned(),
            informers: vec![InformerState {
                resource: "nodes/v1".to_owned(), synced: true, reason: Some("cut".to_owned()), broken_for: Some(75),
                ..InformerState::default()
            }],
        }],
        ..state()
    },
    &["<details open>", "1 of 1 not in sync", "broken</span>", "for 1 min 15 s", "cut"]
)]
#[case::not_connected(
    State { clusters: vec![ClusterState { name: "workload".to_owned(), informers: vec![] }], ..state() },
    &["not connected"]
)]
fn the_first_page_says(#[case] state: State, #[case] expected: &[&str]) {
    assert_shows(&front(&state), expected);
}

#[rstest]
#[case(None)]
#[case(Some(600))]
fn a_standby_raises_no_alarm(#[case] last_refresh_ago: Option<u64>) {
    let calls = CallsState { last_refresh_ago, last_refresh_refused: None };
    let page = front(&State { calls, groups: vec![workers()], ..state() });
    assert!(page.contains("badge quiet") && !page.contains("badge bad") && !page.contains("badge odd"), "{page}");
}

#[test]
fn a_group_says_what_was_written_what_was_refused_and_what_its_instances_do() {
    let instance = |id: &str, state| InstanceView {
        instance: Instance { id: id.to_owned(), state, error: None },
        machine: Some("m".to_owned()),
        node: Some("worker-1".to_owned()),
        node_gone: state == InstanceState::Running,
        created_at: Some("2026-01-01T00:00:00Z".parse().unwrap()),
    };
    let group = Group {
        history: vec![
            HistoryEntry {
                code: Some("failed_precondition".into()),
                ..entry("ScaleDownRefused", HistoryOutcome::Refused, 59, "it is rolling out")
            },
            entry("ScaledUp", HistoryOutcome::Done, 59, "2→3"),
        ],
        written: Some(WrittenSize { replicas: 3, ago: 5 }),
        instances: Some(vec![
            instance("cloud:///a", InstanceState::Running),
            instance("replica-0", InstanceState::Creating),
        ]),
        ..workers()
    };
    let page = page_of(&State { groups: vec![group], ..state() }, None);
    assert_shows(
        &page,
        &[
            "<title>MachineDeployment/team-a/workers – last command refused or failed</title>",
            "ScaleDownRefused",
            "<code>failed_precondition</code>",
            "it is rolling out",
            "2 times, first <time",
            ">2026-01-01 00:59:00 UTC</div>",
            "2→3",
            "The size 3 was written 5 s ago",
            "<summary>worker-1 (gone)</summary>",
            ">kubectl describe machinedeployments.cluster.x-k8s.io -n team-a workers</code>",
            ">kubectl describe machines.cluster.x-k8s.io -n team-a m</code>",
            ">kubectl describe node worker-1</code>",
            "href=\"/debug/state?group=MachineDeployment%2Fteam-a%2Fworkers\"",
            "2 instances",
            ">1 h</time>",
            "href=\"/\">‹ all node groups",
        ],
    );
    assert!(page.find("replica-0") < page.find("cloud:///a"), "what comes stands before what runs: {page}");
}

#[test]
fn the_first_page_begins_with_the_last_writes_and_refusals_of_all_groups() {
    let done = |at| entry("ScaledUp", HistoryOutcome::Done, at, &format!("done at {at}"));
    let done = (10..16).rev().map(done).collect();
    let refused = vec![entry("ScaledUp", HistoryOutcome::Refused, 58, "it is rolling out")];
    let other = "MachineDeployment/team-a/other".to_owned();
    let groups = vec![Group { history: done, ..workers() }, Group { id: other, history: refused, ..workers() }];
    let page = front(&State { groups, ..state() });
    let (recent, rest) =
        page.split_once("Recent writes and refusals</h2>").unwrap().1.split_once("</section>").unwrap();
    assert_shows(recent, &["it is rolling out", "2 min ago", "ScaledUp 2 times", "done at 15", "done at 12"]);
    assert!(recent.find("it is rolling out") < recent.find("done at 15"), "{recent}");
    assert!(!recent.contains("done at 11") && rest.contains("<h2>Groups</h2>"), "{recent}");
}

#[test]
fn a_name_of_a_machine_leads_to_its_group() {
    let other = Group { id: "MachineDeployment/team-a/other".to_owned(), ..workers() };
    let state = State { groups: vec![workers(), other], ..state() };
    let view = View::parse("q=workers-x7-abcde").unwrap();
    let page = overview::overview(&state, &[workers().id], &view).into_string();
    assert_shows(
        &page,
        &[
            "<code>workers-x7-abcde</code> of <a href=\"/groups/MachineDeployment/team-a/workers\">team-a/<wbr>workers</a>",
            "1 row<",
        ],
    );
    assert!(!page.contains("team-a/<wbr>other"), "{page}");
}

#[test]
fn a_page_fetches_itself_anew_only_when_that_is_asked_for() {
    let view = View::parse("refresh=30&q=work").unwrap();
    let page = overview::overview(&State { groups: vec![workers()], ..state() }, &[], &view).into_string();
    assert!(page.contains("<meta http-equiv=\"refresh\" content=\"30\">"), "{page}");
    assert!(page.contains("href=\"/?q=work\">stop</a>"), "{page}");
}

#[test]
fn a_long_list_is_cut_into_pages_that_keep_what_was_asked_for() {
    let groups = (0..250).map(|n| Group { id: format!("MachineDeployment/team-a/g{n:03}"), ..workers() });
    let state = State { groups: groups.collect(), ..state() };
    let page = overview::overview(&state, &[], &View::parse("q=team-a&sort=id&page=2").unwrap()).into_string();
    let links = ["href=\"/?q=team-a&amp;sort=id\"", "href=\"/?q=team-a&amp;sort=id&amp;page=3\""];
    assert_shows(&page, &["250 rows", "page 2 of 3", links[0], links[1]]);
    assert!(page.contains("g100") && page.contains("g199") && !page.contains("g099") && !page.contains("g200"));
}
