//! Installs Cluster API's CRDs, reduced to one version of its contract, or those of OpenShift's Machine API, and
//! infrastructure templates of our own.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    objects::{CAPI_GROUP, CAPI_KINDS, Contract, INFRASTRUCTURE_GROUP, MACHINE_API_GROUP, Objects, Place},
    wait::{SOON, eventually},
};

/// The kind of infrastructure template that is installed.
pub(crate) const TEMPLATE_KIND: &str = "DevMachineTemplate";
/// A kind that the program's user may read too, and that is installed only by a scenario.
pub const LATE_TEMPLATE_KIND: &str = "OxMachineTemplate";

/// The kinds of Cluster API that are installed on an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// All that the program reads.
    All,
    /// The same without MachinePools, as in management clusters that never enabled them.
    AllButMachinePools,
    /// None, for a plain API server.
    Nothing,
}

/// Installs the CRDs from the directory `bases`, and waits until they are served.
pub async fn install(objects: &Objects, bases: &Path, contract: Contract, installed: Installed) -> Result<()> {
    if installed == Installed::Nothing {
        return Ok(());
    }
    let mut names = Vec::new();
    match contract {
        Contract::MachineApi => {
            // No other kind of the group is served, as on OpenShift.
            for kind in ["MachineSet", "Machine"] {
                names.push(objects.create(of_machine_api(kind)).await?);
            }
        }
        Contract::V1Beta1 | Contract::V1Beta2 => {
            for kind in CAPI_KINDS {
                if kind == "MachinePool" && installed == Installed::AllButMachinePools {
                    continue;
                }
                names.push(objects.create(reduced(bases, kind, contract)?).await?);
            }
            names.push(objects.create(template(TEMPLATE_KIND)).await?);
        }
    }
    for crd in names {
        let name = crd.metadata.name.context("a CRD without name")?;
        established(objects, &name).await?;
    }
    Ok(())
}

/// Installs the CRD of one kind of infrastructure template, and waits until it is served.
pub async fn install_template(objects: &Objects, kind: &str) -> Result<()> {
    let crd = objects.create(template(kind)).await?;
    established(objects, &crd.metadata.name.context("a CRD without name")?).await
}

/// The objects that a name identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those of a namespace.
    Namespace,
    /// Those of the cluster.
    Cluster,
}

/// Installs a kind whose spec and status take any content, and waits until it is served. The last version is stored.
pub async fn install_open(objects: &Objects, group: &str, kind: &str, versions: &[&str], reach: Reach) -> Result<()> {
    let created = objects.create(open(group, kind, versions, reach)).await?;
    established(objects, &created.metadata.name.context("a CRD without name")?).await
}

/// Returns the CRD of a kind whose spec and status take any content.
pub(crate) fn open(group: &str, kind: &str, versions: &[&str], reach: Reach) -> Value {
    let plural = Place::of(kind, Contract::V1Beta2).resource.plural;
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema = json!({ "type": "object", "properties": { "spec": anything, "status": anything } });
    let version = |name: &&str| {
        json!({
            "name": name,
            "served": true,
            "storage": Some(name) == versions.last(),
            "subresources": { "status": {} },
            "schema": { "openAPIV3Schema": schema },
        })
    };
    json!({
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "scope": match reach { Reach::Namespace => "Namespaced", Reach::Cluster => "Cluster" },
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

/// Waits until the kind of a CRD is served.
pub(crate) async fn established(objects: &Objects, name: &str) -> Result<()> {
    let what = format!("CRD {name} established");
    eventually(&what, SOON, async || {
        let crd = objects.get("CustomResourceDefinition", name).await?;
        let conditions = crd.data["status"]["conditions"].as_array();
        let established = conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
        ensure!(established, "its status is {}", crd.data["status"]);
        Ok(())
    })
    .await
}

/// Returns the CRD of a kind of OpenShift's Machine API, with the same subresources as its own.
fn of_machine_api(kind: &str) -> Value {
    let mut definition = open(MACHINE_API_GROUP, kind, &[Contract::MachineApi.version()], Reach::Namespace);
    if kind == "MachineSet" {
        let version = &mut definition["spec"]["versions"][0];
        version["subresources"]["scale"] =
            json!({ "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" });
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] =
            json!({ "replicas": { "type": "integer" } });
    }
    definition
}

/// Returns one of Cluster API's own CRDs with one version, which is served and stored. The files define no conversion
/// webhook, so a second version couldn't be served correctly.
fn reduced(bases: &Path, kind: &str, contract: Contract) -> Result<Value> {
    let plural = Place::of(kind, contract).resource.plural;
    let path = bases.join(format!("{CAPI_GROUP}_{plural}.yaml"));
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let mut crd: Value = serde_yaml::from_str(&text).with_context(|| format!("parsing {}", path.display()))?;
    let versions =
        crd["spec"]["versions"].as_array_mut().with_context(|| format!("no versions in {}", path.display()))?;
    versions.retain(|version| version["name"] == contract.as_str());
    ensure!(versions.len() == 1, "no {contract} in {}", path.display());
    versions[0]["served"] = json!(true);
    versions[0]["storage"] = json!(true);
    Ok(crd)
}

/// Returns a kind of infrastructure template, whose capacity may hold integers besides strings, as in real ones.
fn template(kind: &str) -> Value {
    let version = Place::of(kind, Contract::V1Beta2).resource.version;
    open(INFRASTRUCTURE_GROUP, kind, &[&version], Reach::Namespace)
}
