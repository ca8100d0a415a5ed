//! The Machines and Nodes of a group as scenarios read them.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::DynamicObject;
use serde_json::{Value, json};

pub use super::groups::HOOK;
use super::{
    groups::Group,
    testbed::{POLL_INTERVAL, TIMEOUT, Testbed},
};
use crate::{proto::ExternalGrpcNode, wait::every};

/// The finalizer that holds a Machine in deletion, whatever its controllers do.
const FINALIZER: &str = "capi-autoscaler-provider.io/e2e";

/// A Machine at one moment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: String,
    /// The name of its Node.
    pub node: Option<String>,
    /// The providerID.
    pub provider_id: Option<String>,
    /// True if it is being deleted.
    pub deleting: bool,
    /// The controller, such as a MachineSet.
    pub owner: String,
}

impl Machine {
    fn of(object: &DynamicObject) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let owners = object.metadata.owner_references.iter().flatten();
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            phase: text(&object.data["status"]["phase"]).unwrap_or_default(),
            node: text(&object.data["status"]["nodeRef"]["name"]),
            provider_id: text(&object.data["spec"]["providerID"]).filter(|id| !id.is_empty()),
            deleting: object.metadata.deletion_timestamp.is_some(),
            owner: owners.map(|owner| owner.name.clone()).next().unwrap_or_default(),
        }
    }

    /// Returns true if it is running with a Node and isn't being deleted.
    pub fn runs(&self) -> bool {
        self.phase == "Running" && self.node.is_some() && !self.deleting
    }
}

/// Returns their names.
pub fn names(machines: &[Machine]) -> BTreeSet<String> {
    machines.iter().map(|machine| machine.name.clone()).collect()
}

impl Testbed {
    /// Returns the Machines of a group, by name.
    pub async fn machines(&self, group: &Group) -> Result<Vec<Machine>> {
        let objects = self.objects.list("Machine", &format!("pool={}", group.name)).await?;
        let mut machines: Vec<_> = objects.iter().map(Machine::of).collect();
        machines.sort();
        Ok(machines)
    }

    /// Waits until the Machines of a group satisfy a condition.
    pub async fn machines_that(
        &self,
        group: &Group,
        what: &str,
        are: impl Fn(&[Machine]) -> bool,
    ) -> Result<Vec<Machine>> {
        let what = format!("{what} of {}", group.id);
        every(POLL_INTERVAL, &what, self.timeout(), async || {
            let machines = self.machines(group).await?;
            ensure!(are(&machines), "its Machines are {machines:#?}");
            Ok(machines)
        })
        .await
    }

    /// Waits until a group has exactly this number of Machines, all of them running, and their Nodes are initialized.
    pub async fn running(&self, group: &Group, count: usize) -> Result<Vec<Machine>> {
        let what = format!("{count} running Machines with initialized Nodes of {}", group.id);
        every(POLL_INTERVAL, &what, self.timeout(), async || {
            let machines = self.machines(group).await?;
            let run = machines.len() == count && machines.iter().all(Machine::runs);
            ensure!(run, "its Machines are {machines:#?}");
            self.initialized(&machines).await?;
            Ok(machines)
        })
        .await
    }

    /// Fails for the first Node that isn't ready or that Cluster API has still to initialize, which it does after the
    /// Machine is running: no Pod is put on it, so that Cluster Autoscaler asks for another.
    pub async fn initialized(&self, machines: &[Machine]) -> Result<()> {
        for name in machines.iter().filter_map(|machine| machine.node.as_ref()) {
            let node: Node = self.workload.get("Node", name).await?.try_parse()?;
            ensure!(sandbox::autoscaler::is_ready(&node), "Node {name} takes no Pods: {:?}", node.spec);
        }
        Ok(())
    }

    /// Deletes a Machine, which then hangs, and waits until its Node is gone.
    pub async fn hang(&self, machine: &Machine) -> Result<()> {
        let finalizers = self.objects.get("Machine", &machine.name).await?.metadata.finalizers.unwrap_or_default();
        let finalizers = [finalizers, vec![FINALIZER.to_owned()]].concat();
        self.objects.patch("Machine", &machine.name, json!({ "metadata": { "finalizers": finalizers } })).await?;
        self.objects.delete("Machine", &machine.name).await?;
        let node = machine.node.as_deref().context("a Machine without Node")?;
        every(POLL_INTERVAL, &format!("Node {node} gone"), TIMEOUT, async || {
            let left = self.workload.find("Node", node).await?;
            ensure!(left.is_none(), "it is there");
            let hanging = self.objects.get("Machine", &machine.name).await?;
            ensure!(hanging.metadata.deletion_timestamp.is_some(), "the Machine isn't being deleted");
            let finalizers = hanging.metadata.finalizers.unwrap_or_default();
            ensure!(finalizers == [FINALIZER], "the Machine is held by {finalizers:?}");
            Ok(())
        })
        .await
    }

    /// Holds the deletion of Machines by a hook, as a slow drain does, or releases it with null.
    pub async fn hold(&self, machines: &[Machine], hook: Value) -> Result<()> {
        for machine in machines {
            self.objects.annotate("Machine", &machine.name, json!({ HOOK: hook })).await?;
        }
        Ok(())
    }

    /// Lets the only Machine of a group write its providerID with another slash than its Node, as some infrastructure
    /// providers do.
    pub async fn change_form_of_id(&self, group: &Group) -> Result<Machine> {
        let machine = self.running(group, 1).await?.remove(0);
        let id = machine.provider_id.as_ref().context("a running Machine without providerID")?;
        let id = id.replace(":///", ":////");
        self.objects.patch("LoopbackMachine", &machine.name, json!({ "spec": { "providerID": id } })).await?;
        let has_form = |machines: &[Machine]| machines.len() == 1 && machines[0].provider_id.as_ref() == Some(&id);
        self.machines_that(group, "the other form of the id", has_form).await?;
        Ok(machine)
    }

    /// Returns a Machine's Node as Cluster Autoscaler sends it.
    pub async fn node_of(&self, machine: &Machine) -> Result<ExternalGrpcNode> {
        let name = machine.node.as_deref().with_context(|| format!("{machine:?} has no Node"))?;
        self.workload.node_as_sent(name).await
    }
}
