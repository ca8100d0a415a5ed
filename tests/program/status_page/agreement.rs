//! Tests that each fault has the same wording in all views: `groups`, `explain`, the status page, a metric, the log and
//! an Event.

use std::{fs, time::Duration};

use sandbox::{
    SandboxOptions,
    faults::{Fault, WatchFault},
};
use serde_json::json;

use testkit::{Certificate, until};

use super::views::{of_template, text_of};
use crate::{
    log::Log,
    world::{World, cluster, deployment},
};

/// A fault and the views that report it. The comment beside a view that is `false` gives the reason.
struct Expected {
    fault: &'static str,
    /// The group that it concerns, or `None` for all.
    group: Option<&'static str>,
    /// The words that every view shows.
    words: &'static str,
    groups: bool,
    explain: bool,
    log: bool,
    /// The start of a line of the metrics, without the program's name, and its value.
    metric: (&'static str, &'static str),
    event: Option<&'static str>,
}

/// The first of January 2001, in seconds.
const FIRST_OF_2001: u64 = 978_307_200;

const EXPECTED: [Expected; 6] = [
    Expected {
        fault: "403 on an infrastructure template",
        group: Some("denied"),
        words: "templates are none of your business",
        groups: true,
        explain: true,
        log: true,
        metric: (
            "node_group_problem{group=\"MachineDeployment/team-a/denied\",state=\"no_scale_from_zero\",problem=\"template\"}",
            "1",
        ),
        // Events report commands, and no command was carried out or refused.
        event: None,
    },
    Expected {
        fault: "a bad annotation",
        group: Some("mistyped"),
        words: "\"ten\"",
        groups: true,
        explain: true,
        log: true,
        metric: (
            "node_group_problem{group=\"MachineDeployment/team-a/mistyped\",state=\"invalid_bounds\",problem=\"bounds\"}",
            "1",
        ),
        event: None,
    },
    Expected {
        fault: "a rollout",
        group: Some("turning"),
        words: "rolling out",
        groups: true,
        explain: true,
        log: true,
        metric: (
            "node_group_rollout_seconds{group=\"MachineDeployment/team-a/turning\",cause=\"machine_sets\",deletes=\"refused\"}",
            "",
        ),
        event: Some("ScaleDownRefused"),
    },
    Expected {
        fault: "a write that the API server refuses",
        group: Some("unwritten"),
        words: "sizes are frozen this week",
        groups: true,
        // `explain` reads the clusters and knows nothing of another process's writes.
        explain: false,
        log: true,
        metric: ("commands_total{command=\"increase\",result=\"permission_denied\"}", "1"),
        event: Some("ScaleUpFailed"),
    },
    Expected {
        fault: "a watch that is cut and can't be resumed",
        group: None,
        words: "etcd has gone fishing",
        groups: true,
        // `explain` can't read them either, and waits.
        explain: false,
        log: true,
        metric: ("informer_watch_errors_total{cluster=\"management\",resource=\"machines.", ""),
        event: None,
    },
    Expected {
        fault: "an expired certificate",
        group: None,
        words: "is valid from 2000-01-01T00:00:00Z to 2001-01-01T00:00:00Z only",
        groups: true,
        // The listener belongs to another process.
        explain: false,
        log: true,
        metric: ("tls_reload_failing", "1"),
        event: None,
    },
];

impl Expected {
    fn of(fault: &str) -> &'static Self {
        EXPECTED.iter().find(|expected| expected.fault == fault).unwrap()
    }

    /// Waits until every view reports it.
    async fn everywhere(&self, world: &World, log: &Log) {
        let Self { fault, group, words, metric: (metric, value), .. } = *self;
        let says = |view: &str, text: &str| {
            let about = group.is_none_or(|group| text.contains(group));
            (about && text.contains(words)).then_some(()).ok_or_else(|| format!("{fault}, {view}: {text}"))
        };
        let page = async || match group {
            Some(group) => world.page_of(group).await,
            None => text_of(&world.page("/").await),
        };
        until(&format!("{fault}, page, says {words:?}"), async || says("page", &page().await).ok()).await;
        // All other views are up to date by then, so they are read once and their content is shown on failure.
        if self.groups {
            says("groups", &world.groups().await).unwrap();
        }
        if let (true, Some(group)) = (self.explain, group) {
            says("explain", &world.explain(group).await).unwrap();
        }
        if self.log {
            let lines = log.text();
            let of_it = lines.lines().filter(|line| group.is_none_or(|group| line.contains(group)));
            assert!(of_it.clone().any(|line| line.contains(words)), "{fault}, log: {lines}");
        }
        let metrics = world.metrics().await;
        let line = metrics.lines().find_map(|it| it.strip_prefix("capi_autoscaler_provider_")?.strip_prefix(metric));
        let line = line.unwrap_or_else(|| panic!("{fault}, metric {metric}: {metrics}"));
        assert!(line.ends_with(&format!(" {value}").trim_end().to_owned()), "{fault}, metric {metric}: {line}");
        assert!(!line.ends_with(" 0"), "{fault}, metric {metric}: {line}");
        match (self.event, group) {
            (Some(reason), Some(group)) => {
                let is_it = |event: &String| event.starts_with(&format!("{reason}: ")) && event.contains(words);
                until(&format!("{fault}, Event"), async || world.events(group).iter().any(is_it).then_some(())).await;
            }
            (None, Some(group)) => assert_eq!(world.events(group), [""; 0], "{fault}"),
            (_, None) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_view_shows_a_fault_in_the_same_words() {
    let log = Log::keep();
    let max = |size: &str| json!({ "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": size });
    let manifests = vec![
        cluster(),
        of_template(deployment("denied", 0, json!({})), "VSphereMachineTemplate"),
        deployment("mistyped", 1, max("ten")),
        deployment("turning", 2, json!({})),
        deployment("unwritten", 1, json!({})),
    ];
    let forbidden = Fault::refuse(403, "Forbidden", "templates are none of your business");
    let forbidden = forbidden.on_path("vspheremachinetemplates").unwrap();
    let options = SandboxOptions { manifests, ..SandboxOptions::default() };
    let world = World::start(options, &["--max-staleness=50ms"], |sandbox| {
        sandbox.management().faults().add(forbidden);
    })
    .await;
    let management = world.sandbox.management();
    world.refresh().await;
    Expected::of("a bad annotation").everywhere(&world, &log).await;
    Expected::of("403 on an infrastructure template").everywhere(&world, &log).await;

    world.change(
        "machinedeployments",
        "turning",
        json!({ "spec": { "template": { "spec": { "version": "v1.36.0" } } } }),
    );
    world.pass(0).await;
    until("the rollout", async || world.page_of("turning").await.contains("rolling out").then_some(())).await;
    let nodes = world.nodes_of("turning").into_iter().take(1).collect();
    let id = "MachineDeployment/team-a/turning".to_owned();
    let mut client = world.client().await;
    client.node_group_delete_nodes(proto::NodeGroupDeleteNodesRequest { id, nodes }).await.unwrap_err();
    Expected::of("a rollout").everywhere(&world, &log).await;

    let frozen = Fault::refuse(403, "Forbidden", "sizes are frozen this week").on_verb("patch");
    management.faults().add(frozen.on_path("/unwritten/scale").unwrap());
    let id = "MachineDeployment/team-a/unwritten".to_owned();
    client.node_group_increase_size(proto::NodeGroupIncreaseSizeRequest { id, delta: 1 }).await.unwrap_err();
    Expected::of("a write that the API server refuses").everywhere(&world, &log).await;

    let gone = Fault::refuse(503, "ServiceUnavailable", "etcd has gone fishing");
    management.faults().add(gone.on_path("/machines").unwrap());
    management.faults().add(Fault::watch(WatchFault::Cut).on_path("/machines").unwrap());
    world.pass(60).await;
    Expected::of("a watch that is cut and can't be resumed").everywhere(&world, &log).await;
    management.faults().clear();
    world.stop().await;

    expired_certificate(&log).await;
}

/// Replaces the files by expired ones; the certificate in force expires as well.
async fn expired_certificate(log: &Log) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let write = |end| {
        let Certificate { certificate, key } = Certificate::valid_until("provider", end);
        fs::write(file("tls.crt"), certificate).unwrap();
        fs::write(file("tls.key"), key).unwrap();
    };
    let now = Duration::from_secs(jiff::Timestamp::now().as_second().unsigned_abs());
    write(now + Duration::from_secs(8));
    let flags = [
        format!("--tls-cert-file={}", file("tls.crt").display()),
        format!("--tls-key-file={}", file("tls.key").display()),
    ];
    let world = World::of(vec![cluster()], &flags.each_ref().map(String::as_str)).await;
    assert!(text_of(&world.page("/").await).contains("server: ! expires soon"));
    write(Duration::from_secs(FIRST_OF_2001));
    Expected::of("an expired certificate").everywhere(&world, log).await;
    until("the one in force is expired", async || world.page("/").await.contains("expired</span>").then_some(())).await;
    until("the log says so", async || log.text().contains("the certificate in force has expired").then_some(())).await;
    world.stop().await;
}
