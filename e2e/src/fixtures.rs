//! The real objects of `tests/fixtures`, created on an API server as they were at one moment.

use std::{collections::HashMap, fs, path::Path};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::world::World;

/// Fields that an API server sets, and refuses or ignores when a client does.
const SET_BY_SERVER: [&str; 6] =
    ["uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// Creates the objects of a moment in the life of the recorded cluster, a folder of `tests/fixtures`, in the scenario's
/// namespace and under the name of the scenario's cluster.
///
/// The recorded namespace and cluster name are replaced everywhere, so `name("stage-md-0")` of the result is the name
/// here of the recorded `stage-md-0`.
pub async fn load(world: &World, moment: &str) -> Result<Recorded> {
    let recorded = Recorded::of([("team-a", &world.namespace), ("stage", &world.cluster)]);
    world.has_cluster();
    let management = format!("management-{}.yaml", world.plane.contract);
    create_all(world, &recorded, moment, &["templates.yaml", management.as_str(), "workload-nodes.yaml"]).await?;
    Ok(recorded)
}

/// Creates the objects of `tests/fixtures/machine-api` in the scenario's namespace, under the name of the scenario's
/// cluster.
pub async fn load_machine_api(world: &World) -> Result<Recorded> {
    // Nodes are shared with other scenarios, so the ids of their instances must differ.
    let instances = format!("/i-{}-", world.cluster);
    let names =
        [("openshift-machine-api", world.namespace.as_str()), ("prod-x7k2p", &world.cluster), ("/i-", &instances)];
    let recorded = Recorded::of(names);
    create_all(world, &recorded, "machine-api", &["management.yaml", "workload-nodes.yaml"]).await?;
    Ok(recorded)
}

/// Creates the objects of these files of a folder in `tests/fixtures`, in order.
async fn create_all(world: &World, recorded: &Recorded, folder: &str, files: &[&str]) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(folder);
    let mut uids = HashMap::new();
    for file in files {
        let text = fs::read_to_string(folder.join(file)).with_context(|| (*file).to_owned())?;
        let list: Value = serde_yaml::from_str(&recorded.name(&text))?;
        let items = list["items"].as_array().context("not a list")?;
        for item in items {
            create(world, item, &mut uids).await?;
        }
    }
    Ok(())
}

/// The names and ids that recorded objects get here.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The recorded names and ids, each with the one here.
    names: Vec<(&'static str, String)>,
}

impl Recorded {
    /// Creates a mapping of recorded names and ids to those here.
    fn of<const N: usize>(names: [(&'static str, &str); N]) -> Self {
        Self { names: names.into_iter().map(|(recorded, here)| (recorded, here.to_owned())).collect() }
    }

    /// Returns the name or id here of a recorded one.
    pub fn name(&self, recorded: &str) -> String {
        self.names.iter().fold(recorded.to_owned(), |text, (recorded, here)| text.replace(recorded, here))
    }
}

/// Creates one object. `uids` maps recorded uids to those assigned here.
async fn create(world: &World, item: &Value, uids: &mut HashMap<String, String>) -> Result<()> {
    let mut object = item.clone();
    let metadata = object["metadata"].as_object_mut().context("an object without metadata")?;
    for field in SET_BY_SERVER {
        metadata.remove(field);
    }
    for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
        // Owners that were not recorded, such as a control plane, keep their uid.
        if let Some(uid) = owner["uid"].as_str().and_then(|uid| uids.get(uid)) {
            owner["uid"] = json!(uid);
        }
    }
    let created = world.objects.create(object).await?;
    if let (Some(recorded), Some(uid)) = (item["metadata"]["uid"].as_str(), created.metadata.uid) {
        uids.insert(recorded.to_owned(), uid);
    }
    if item["metadata"]["deletionTimestamp"].is_string() {
        let kind = item["kind"].as_str().context("an object without kind")?;
        let name = created.metadata.name.unwrap_or_default();
        world.objects.delete(kind, &name).await?;
    }
    Ok(())
}
