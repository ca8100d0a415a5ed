//! Fleets: many node groups with all their Machines and Nodes, created in their final state without running
//! controllers, so that a hundred thousand Machines take seconds. The objects are the same as those of the controllers,
//! which must find nothing to do.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    api::Api,
    controllers::{
        CapiVersion, Context, Plan, Write, cluster, conditions, keys,
        machine::{self, Fate},
        machine_deployment, machine_set,
        node::Hardware,
        object::{self, Names, Object},
    },
    definitions,
    settings::{Contract, Settings, Times},
};

/// The API group of the node groups' infrastructure templates.
const PROVIDER: &str = "infrastructure.cluster.x-k8s.io";
const TEMPLATE: &str = "FleetMachineTemplate";

/// A fleet of MachineDeployments `group-0000` and so on.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The number of MachineDeployments.
    pub groups: usize,
    /// The number of Machines of each MachineDeployment; all are Running, with a Node that is Ready.
    pub machines: usize,
    /// The namespace of all of them.
    pub namespace: String,
    /// The name of their Cluster, which is created too.
    pub cluster: String,
}

/// The differences between the fleets of one management cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variation {
    /// The beginning of the groups' names.
    pub(crate) prefix: String,
    /// A label of the Cluster.
    pub(crate) label: Option<(String, String)>,
    /// The number of uids that are taken.
    pub(crate) uids: u64,
}

pub(crate) fn define_templates(management: &Api) -> anyhow::Result<()> {
    let kind = definitions::of_provider(PROVIDER, TEMPLATE, &["v1beta2".to_owned()]);
    management.load_values(vec![kind]).map(drop)
}

impl Fleet {
    /// Creates the fleet in two APIs; `management` must have Cluster API's kinds.
    pub fn build(&self, management: &Api, workload: &Api, contract: Contract) -> anyhow::Result<()> {
        define_templates(management)?;
        self.load(management, workload, contract, &Variation::default()).map(drop)
    }

    /// Creates the fleet beside others, and returns the number of uids that are taken then. The kind of the templates
    /// must be defined.
    pub(crate) fn load(
        &self,
        management: &Api,
        workload: &Api,
        contract: Contract,
        variation: &Variation,
    ) -> anyhow::Result<u64> {
        let now = management.clock().now();
        let settings = Settings { contract, times: Times::ZERO, models: None };
        let made = variation.uids;
        let mut maker = Maker { fleet: self, variation, now, settings, names: Names::default(), made };
        let cluster = maker.cluster();
        management.load_values(vec![Value::clone(&cluster)])?;
        let controllers = management.as_manager(machine_deployment::MANAGER);
        for group in 0..self.groups {
            let (managed, nodes) = maker.group(group, &cluster);
            controllers.load_values(managed)?;
            workload.load_values(nodes)?;
        }
        Ok(maker.made)
    }
}

struct Maker<'a> {
    fleet: &'a Fleet,
    variation: &'a Variation,
    now: Timestamp,
    settings: Settings,
    names: Names,
    made: u64,
}

impl Maker<'_> {
    fn context(&mut self) -> Context<'_> {
        Context { now: self.now, settings: &self.settings, version: CapiVersion::default(), names: &mut self.names }
    }

    /// Returns the object with the fields that an API sets on each.
    fn born(&mut self, mut object: Value) -> Arc<Value> {
        object.set("/metadata/uid", json!(self.uid()));
        object.set("/metadata/creationTimestamp", json!(conditions::time(self.now)));
        object.set_default("/metadata/generation", json!(1));
        Arc::new(object)
    }

    fn uid(&mut self) -> String {
        self.made += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.made)
    }

    fn cluster(&mut self) -> Arc<Value> {
        let mut cluster = json!({
            "apiVersion": self.settings.contract.api_version(),
            "kind": "Cluster",
            "metadata": { "name": self.fleet.cluster, "namespace": self.fleet.namespace },
            "spec": { "clusterNetwork": {} },
        });
        if let Some((key, value)) = &self.variation.label {
            cluster.set(&object::label(key), json!(value));
        }
        let cluster = self.born(cluster);
        let plan = cluster::plan(&cluster, &self.context());
        after(&plan, &cluster)
    }

    /// Returns the objects of a group in the management cluster, and its Nodes.
    fn group(&mut self, number: usize, cluster: &Value) -> (Vec<Value>, Vec<Value>) {
        let deployment = self.deployment(number);
        let deployment = self.born(deployment);
        let plan = machine_deployment::plan(&deployment, Some(cluster), Vec::new(), &self.context());
        let deployment = after(&plan, &deployment);
        let set = plan.writes.into_iter().find_map(created).unwrap_or_default();
        let set = self.born(set);
        let template = template_of(&deployment);
        let (machine, node) = self.machine(&set, &template);
        let mut machines = Vec::with_capacity(self.fleet.machines);
        let mut nodes = Vec::with_capacity(self.fleet.machines);
        for _ in 0..self.fleet.machines {
            let name = format!("{}-{}", set.name(), self.names.suffix());
            machines.push(Arc::new(named_machine(&machine, &name, self.uid())));
            nodes.push(named_node(&node, &name, self.fleet, self.uid()));
        }
        let plan = machine_set::plan(&set, &machines, &mut self.context());
        let set = after(&plan, &set);
        let plan = machine_deployment::plan(&deployment, Some(cluster), vec![Arc::clone(&set)], &self.context());
        let deployment = after(&plan, &deployment);
        let template = Arc::new(template);
        let managed = [template, deployment, set].into_iter().chain(machines).map(Arc::unwrap_or_clone).collect();
        (managed, nodes)
    }

    fn deployment(&self, number: usize) -> Value {
        let name = format!("{}group-{number:04}", self.variation.prefix);
        json!({
            "apiVersion": self.settings.contract.api_version(),
            "kind": "MachineDeployment",
            "metadata": {
                "name": name,
                "namespace": self.fleet.namespace,
                "annotations": {
                    keys::MIN_SIZE: "0",
                    keys::MAX_SIZE: (2 * self.fleet.machines.max(1)).to_string(),
                },
            },
            "spec": {
                "clusterName": self.fleet.cluster,
                "replicas": self.fleet.machines,
                "template": { "spec": {
                    "clusterName": self.fleet.cluster,
                    "version": "v1.35.0",
                    "infrastructureRef": self.reference(&name),
                } },
            },
        })
    }

    /// Returns a reference to a template, in the form of the contract version.
    fn reference(&self, name: &str) -> Value {
        match self.settings.contract {
            Contract::V1Beta1 => {
                json!({ "apiVersion": format!("{PROVIDER}/v1beta2"), "kind": TEMPLATE, "name": name })
            }
            Contract::V1Beta2 => json!({ "apiGroup": PROVIDER, "kind": TEMPLATE, "name": name }),
        }
    }

    /// Returns a running Machine of a MachineSet, and its Node.
    fn machine(&mut self, set: &Value, template: &Value) -> (Arc<Value>, Value) {
        let machine = machine_set::new_machine(set, &mut self.context());
        let mut machine = self.born(machine);
        let (fate, mut steps) = (Fate::plain(self.settings.times), machine::Steps::new(self.now));
        let mut plan = |machine: &Arc<Value>, node: Option<&Arc<Value>>, context: &Context<'_>| {
            after(&machine::plan(&machine::Inputs { machine, fate: &fate, node }, &mut steps, context), machine)
        };
        // The Machine first gets its infrastructure, and then refers to its Node.
        machine = plan(&machine, None, &self.context());
        let node = machine::node_of(&machine, Hardware::of(Some(set), Some(template))).object(true, self.now);
        let node = self.born(node);
        machine = plan(&machine, Some(&node), &self.context());
        (machine, Arc::unwrap_or_clone(node))
    }
}

/// Returns the infrastructure template of a group, which has the group's name.
fn template_of(group: &Value) -> Value {
    json!({
        "apiVersion": format!("{PROVIDER}/v1beta2"),
        "kind": TEMPLATE,
        "metadata": { "name": group.name(), "namespace": group.namespace() },
        "spec": { "template": { "spec": {} } },
        "status": {
            "capacity": { "cpu": "4", "memory": "16Gi", "pods": "110" },
            "nodeInfo": { "architecture": "amd64", "operatingSystem": "linux" },
        },
    })
}

fn created(write: Write) -> Option<Value> {
    match write {
        Write::Create(_, object) => Some(object),
        Write::Change(..) | Write::Delete(..) => None,
    }
}

fn after(plan: &Plan, object: &Arc<Value>) -> Arc<Value> {
    let changed = plan.writes.iter().find_map(|write| match write {
        Write::Change(_, before, after) if Arc::ptr_eq(before, object) => Some(Arc::new(after.clone())),
        Write::Change(..) | Write::Create(..) | Write::Delete(..) => None,
    });
    changed.unwrap_or_else(|| Arc::clone(object))
}

/// Returns the Machine under another name.
fn named_machine(machine: &Value, name: &str, uid: String) -> Value {
    let mut machine = machine.clone();
    let namespace = machine.namespace().to_owned();
    for (place, value) in [
        ("/metadata/name", name.to_owned()),
        ("/metadata/uid", uid),
        ("/spec/bootstrap/dataSecretName", name.to_owned()),
        ("/spec/infrastructureRef/name", name.to_owned()),
        ("/spec/providerID", machine::provider_id(&namespace, name)),
        ("/status/nodeRef/name", name.to_owned()),
    ] {
        machine.set(place, Value::String(value));
    }
    machine
}

/// Returns the Node under another name.
fn named_node(node: &Value, name: &str, fleet: &Fleet, uid: String) -> Value {
    let mut node = node.clone();
    for (place, value) in [
        ("/metadata/name", name.to_owned()),
        ("/metadata/uid", uid),
        (&*object::label("kubernetes.io/hostname"), name.to_owned()),
        (&*object::annotation(keys::NODE_MACHINE), name.to_owned()),
        ("/spec/providerID", machine::provider_id(&fleet.namespace, name)),
    ] {
        node.set(place, Value::String(value));
    }
    node
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{
        api::{Resource, Selection},
        clock::Clock,
        define_cluster_api,
        engine::{Controllers, Workloads},
    };

    #[rstest]
    fn the_controllers_find_nothing_to_do_in_a_fleet(
        #[values(Contract::V1Beta1, Contract::V1Beta2)] contract: Contract,
    ) {
        let clock = Clock::driven(Timestamp::UNIX_EPOCH);
        let (management, workload) = (Api::new(clock.clone()), Api::new(clock.clone()));
        define_cluster_api(&management, contract).unwrap();
        let settings = Settings { contract, ..Settings::default() };
        let mut controllers = Controllers::live(&management, Workloads::Shared(workload.clone()), clock, settings);
        let fleet = Fleet { groups: 3, machines: 4, namespace: "team-a".to_owned(), cluster: "prod".to_owned() };
        fleet.build(&management, &workload, contract).unwrap();
        let nodes = workload.list(&Resource::core("nodes"), &Selection::default()).unwrap();
        assert_eq!(nodes.len(), 12);
        let before = (management.revision(), workload.revision());
        assert!(controllers.settle(10_000));
        assert_eq!((management.revision(), workload.revision()), before);
    }
}
