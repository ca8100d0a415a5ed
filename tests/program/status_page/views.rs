//! The views of the program that a person reads: pages, metrics and commands.

use std::process::Command;

use proto::ExternalGrpcNode;
use sandbox::{SandboxOptions, fleet::Fleet};
use serde_json::{Value, json};
use testkit::get;

use crate::world::World;

const PROGRAM: &str = env!("CARGO_BIN_EXE_capi-autoscaler-provider");

impl World {
    /// Starts the program on a fleet of groups with Machines, and nothing else.
    pub(crate) async fn of_fleet(groups: usize, machines: usize) -> Self {
        let (namespace, cluster) = ("team-a".to_owned(), "prod".to_owned());
        let fleet = Fleet { groups, machines, namespace, cluster };
        Self::start(SandboxOptions { fleet: Some(fleet), ..SandboxOptions::default() }, &[], |_| {}).await
    }

    pub(crate) async fn refresh(&self) {
        self.client().await.refresh(proto::RefreshRequest {}).await.unwrap();
    }

    /// Returns the Nodes of a group as Cluster Autoscaler sends them.
    pub(crate) fn nodes_of(&self, group: &str) -> Vec<ExternalGrpcNode> {
        self.nodes().into_iter().filter(|node| node.name.starts_with(group)).collect()
    }

    /// Returns a page as HTML.
    pub(crate) async fn page(&self, path: &str) -> String {
        let (status, body) = get(&self.admin(), path).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub(crate) fn admin(&self) -> String {
        self.server.admin_address().unwrap().to_string()
    }

    /// Returns the page of a MachineDeployment as text.
    pub(crate) async fn page_of(&self, name: &str) -> String {
        text_of(&self.page(&format!("/groups/MachineDeployment/team-a/{name}")).await)
    }

    pub(crate) async fn metrics(&self) -> String {
        get(&self.server.http_address().to_string(), "/metrics").await.1
    }

    /// Returns the output of `groups` on the running server.
    pub(crate) async fn groups(&self) -> String {
        let server = format!("--server=http://{}", self.admin());
        said(vec!["groups".to_owned(), server, "--all".to_owned()]).await
    }

    /// Returns the output of `explain` on the clusters.
    pub(crate) async fn explain(&self, name: &str) -> String {
        let kubeconfig = format!("--management-kubeconfig={}", self.sandbox.management_kubeconfig().display());
        let id = format!("MachineDeployment/team-a/{name}");
        let flags = ["explain".to_owned(), id, "--cluster=team-a/prod".to_owned(), kubeconfig];
        said(flags.into()).await
    }

    /// Returns the Events on a MachineDeployment, as `reason: note`.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        self.events_on(name).into_iter().map(|(reason, note)| format!("{reason}: {note}")).collect()
    }
}

/// Returns the output of a command of the program, whatever its exit code.
async fn said(flags: Vec<String>) -> String {
    let run = move || Command::new(PROGRAM).args(flags).env("NO_COLOR", "1").output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Returns the text of a page as a reader sees it: without markup, with single spaces.
pub(crate) fn text_of(html: &str) -> String {
    let mut text = String::new();
    for part in html.split('<') {
        let (tag, rest) = part.split_once('>').unwrap_or(("", part));
        // A possible line break is not a space.
        if tag != "wbr" {
            text.push(' ');
        }
        text.push_str(rest);
    }
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&amp;", "&")];
    let plain = entities.into_iter().fold(text, |text, (entity, plain)| text.replace(entity, plain));
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Removes the capacity annotations, and sets the kind of its infrastructure template.
pub(crate) fn of_template(mut deployment: Value, kind: &str) -> Value {
    deployment["metadata"]["annotations"].as_object_mut().unwrap().retain(|key, _| !key.starts_with("capacity."));
    deployment["spec"]["template"]["spec"]["infrastructureRef"] =
        json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": deployment["metadata"]["name"] });
    deployment
}

/// Returns an infrastructure template that publishes its capacity.
pub(crate) fn template(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": { "name": name, "namespace": "team-a" },
        "spec": { "template": { "spec": {} } },
        "status": {
            "capacity": { "cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1" },
            "nodeInfo": { "architecture": "amd64", "operatingSystem": "linux" },
        },
    })
}
