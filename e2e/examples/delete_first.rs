//! Compares ways to remove named Machines on Cluster API's own controllers: to delete them and then lower the size, and
//! to mark them and then lower the size, as Cluster Autoscaler's own provider does. Prints a Markdown table of what went
//! wrong.
//!
//! ```console
//! cargo run -p e2e --example delete_first -- 200 1    # rounds of each way, and the seed
//! ```
//!
//! All ways play in the same rounds, each with groups of its own. In a fourth of the rounds Cluster API's manager is
//! stopped for up to 3 s after the first call and goes on before the size is lowered, in another fourth after that. No
//! program of this repository takes part but the stand-in infrastructure.
//!
//! A round names one to three of five Machines, one in a rollout. *Replaced* counts new Machines that nobody asked for,
//! *stays* named Machines that are left when the controllers have nothing more to do, *two for one* Machines that went
//! beyond the number of named ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fmt,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    cluster_api::environment::Environment,
    controllers::{
        groups::{Group, Workers},
        testbed::{POLL_INTERVAL, TIMEOUT, Testbed},
    },
    go,
    objects::{Contract, Place},
    pool::Scalable,
    wait::every,
};
use fastrand::Rng;
use futures::future::try_join_all;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};

/// The size at which a group begins, and to which it is brought back after each round.
const SIZE: usize = 5;
/// The Machines that a group in a rollout has got from its new MachineSet.
const EXCHANGED: usize = 2;
/// The longest time for which a way waits until Cluster API has seen a deletion.
const SEEN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Way {
    /// Delete, then lower.
    DeleteFirst,
    /// Delete, wait until Cluster API has seen it, but not for long, then lower.
    DeleteAndWait,
    /// Mark and delete, then lower.
    MarkAndDelete,
    /// Mark, then lower.
    MarkFirst,
}

/// The state of a group, and what else happens to it, when a round begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Scene {
    Calm,
    /// Somebody else has just deleted another Machine, which is to be replaced.
    OtherDeletes,
    /// Somebody else has just added one to the size.
    OtherAdds,
    /// A rollout with `OnDelete`, and the round names Machines of the old or the new MachineSet.
    RolloutNamesOld,
    RolloutNamesNew,
}

/// The state of Cluster API's manager between the first call and the lower size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Manager {
    Runs,
    /// It goes on before the size is lowered.
    StopsBefore,
    /// It goes on after that.
    StopsOver,
}

/// A group that plays one way.
struct Contender {
    way: Way,
    scene: Scene,
    group: Group,
}

/// A round of a group.
struct Round<'a> {
    contender: &'a Contender,
    before: Machines,
    named: Vec<String>,
    /// The Machine that somebody else deletes.
    other: Option<String>,
}

/// The numbers of a row of the table.
type Counts = [usize; 7];
const COLUMNS: [&str; 7] = ["rounds", "named", "unnamed went", "replaced", "stays", "two for one", "size wrong"];

/// A group's Machines by name, when nothing moves.
type Machines = BTreeMap<String, DynamicObject>;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1).map(|text| text.parse::<u64>().context("a number is expected"));
    let rounds = arguments.next().transpose()?.unwrap_or(200);
    let seed = arguments.next().transpose()?.unwrap_or(1);
    let environment = Arc::new(Box::pin(Environment::start(Arc::new(go::components()?))).await?);
    let logs = tempfile::tempdir()?;
    let testbed = Testbed::real(Arc::clone(&environment), PathBuf::new(), logs.path().to_owned()).await?;
    let groups = line_up().into_iter().enumerate().map(|(number, line)| Contender::create(&testbed, number, line));
    let contenders = try_join_all(groups).await?;

    let mut rng = Rng::with_seed(seed);
    let mut table: BTreeMap<(String, Way), Counts> = BTreeMap::new();
    let per_batch = contenders.iter().filter(|one| one.way == Way::DeleteFirst && one.scene == Scene::Calm).count();
    for batch in 0..usize::try_from(rounds)?.div_ceil(per_batch) {
        let manager = [Manager::Runs, Manager::StopsBefore, Manager::Runs, Manager::StopsOver][batch % 4];
        for (row, way, counts) in play(&testbed, &environment, &contenders, manager, &mut rng).await? {
            let sums = table.entry((row, way)).or_default();
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        eprintln!("batch {batch} with {manager:?} is over");
    }
    println!("`cargo run -p e2e --example delete_first -- {rounds} {seed}`\n");
    println!("| where | way | {} |\n|---|---{}|", COLUMNS.join(" | "), "|---".repeat(COLUMNS.len()));
    for ((row, way), counts) in table {
        println!("| {row} | {way} | {} |", counts.map(|count| count.to_string()).join(" | "));
    }
    Ok(())
}

/// Returns the groups of both ways.
fn line_up() -> Vec<(Way, Scene, Scalable)> {
    use Scalable::{MachineDeployment, MachineSet};
    let calm = [MachineDeployment, MachineSet];
    let calm = calm.into_iter().map(|kind| (Scene::Calm, kind));
    let others = [Scene::OtherDeletes, Scene::OtherAdds, Scene::RolloutNamesOld, Scene::RolloutNamesNew];
    let groups: Vec<_> = calm.chain(others.into_iter().map(|scene| (scene, MachineDeployment))).collect();
    let of = |way| groups.iter().map(move |&(scene, kind)| (way, scene, kind));
    [Way::DeleteFirst, Way::DeleteAndWait, Way::MarkAndDelete, Way::MarkFirst].into_iter().flat_map(of).collect()
}

/// Plays a round with all groups at once.
async fn play(
    testbed: &Testbed,
    environment: &Environment,
    contenders: &[Contender],
    manager: Manager,
    rng: &mut Rng,
) -> Result<Vec<(String, Way, Counts)>> {
    let mut rounds = Vec::new();
    for contender in contenders {
        rounds.extend(Round::new(testbed, contender, rng).await?);
    }
    let begun = rounds.iter().map(|round| async move {
        round.first_call(testbed).await?;
        if manager == Manager::Runs { round.lower(testbed).await } else { Ok(()) }
    });
    try_join_all(begun).await?;
    if manager != Manager::Runs {
        environment.core.freeze()?;
        tokio::time::sleep(Duration::from_millis(rng.u64(0..3000))).await;
        if manager == Manager::StopsBefore {
            environment.core.thaw()?;
        }
        try_join_all(rounds.iter().map(|round| round.lower(testbed))).await?;
        environment.core.thaw()?;
    }
    let ended = rounds.iter().map(|round| async move {
        let counts = round.end(testbed).await?;
        Ok((round.contender.row(manager), round.contender.way, counts))
    });
    try_join_all(ended).await
}

impl<'a> Round<'a> {
    /// Chooses the Machines of a round; `None` if the group's rollout is over.
    async fn new(testbed: &Testbed, contender: &'a Contender, rng: &mut Rng) -> Result<Option<Self>> {
        let before = contender.at_rest(testbed).await?;
        let mut named = contender.candidates(testbed, &before).await?;
        rng.shuffle(&mut named);
        let rest = named.split_off(named.len().min(if contender.rolls() { 1 } else { rng.usize(1..=3) }));
        let other = if contender.scene == Scene::OtherDeletes { rest.into_iter().next() } else { None };
        Ok(if named.is_empty() { None } else { Some(Self { contender, before, named, other }) })
    }

    /// Deletes or marks the named Machines, at once.
    async fn first_call(&self, testbed: &Testbed) -> Result<()> {
        let Self { contender, before, named, other } = self;
        if let Some(other) = other {
            testbed.objects.delete("Machine", other).await?;
        }
        if contender.scene == Scene::OtherAdds {
            contender.resize(testbed, before.len() + 1).await?;
        }
        let calls = named.iter().map(|name| async move {
            match contender.way {
                Way::DeleteFirst | Way::DeleteAndWait => delete(testbed, &before[name]).await,
                Way::MarkAndDelete => {
                    mark(testbed, name, json!("true")).await?;
                    delete(testbed, &before[name]).await
                }
                Way::MarkFirst => mark(testbed, name, json!("true")).await,
            }
        });
        try_join_all(calls).await.map(drop)
    }

    /// Lowers the size, in one way only when Cluster API's Machine controller has seen the deletions: the MachineSet
    /// controller has the same cache.
    async fn lower(&self, testbed: &Testbed) -> Result<()> {
        if self.contender.way == Way::DeleteAndWait {
            let seen = every(Duration::from_millis(10), "deletions that are seen", SEEN, async || {
                for machine in &self.named {
                    let machine = testbed.objects.find("Machine", machine).await?;
                    ensure!(machine.is_none_or(|machine| machine.data["status"]["phase"] == "Deleting"), "it isn't");
                }
                Ok(())
            });
            seen.await.unwrap_or_default();
        }
        self.contender.resize(testbed, self.expected()).await
    }

    /// Returns the size that has been asked for.
    fn expected(&self) -> usize {
        self.before.len() - self.named.len() + usize::from(self.contender.scene == Scene::OtherAdds)
    }

    /// Counts what went wrong, and prepares the group for the next round.
    async fn end(&self, testbed: &Testbed) -> Result<Counts> {
        let Self { contender, before, named, other } = self;
        let after = contender.at_rest(testbed).await?;
        let named: BTreeSet<_> = named.iter().collect();
        let is_gone = |name: &&String| !after.contains_key(*name) && Some(*name) != other.as_ref();
        let gone: BTreeSet<_> = before.keys().filter(is_gone).collect();
        let new = after.keys().filter(|name| !before.contains_key(*name)).count();
        let stays: Vec<_> = named.difference(&gone).collect();
        if contender.way == Way::MarkFirst {
            try_join_all(stays.iter().map(|name| mark(testbed, name, json!(null)))).await?;
        }
        if !contender.rolls() {
            contender.resize(testbed, SIZE).await?;
        }
        let asked = usize::from(other.is_some() || contender.scene == Scene::OtherAdds);
        Ok([
            1,
            named.len(),
            gone.difference(&named).count(),
            new.saturating_sub(asked),
            stays.len(),
            gone.len().saturating_sub(named.len()),
            usize::from(after.len() != self.expected()),
        ])
    }
}

impl Contender {
    async fn create(testbed: &Testbed, number: usize, (way, scene, kind): (Way, Scene, Scalable)) -> Result<Self> {
        let workers = Workers::new(&format!("group-{number}")).of(kind).replicas(i32::try_from(SIZE)?);
        let group = workers.create(testbed).await?;
        let contender = Self { way, scene, group };
        let machines = contender.at_rest(testbed).await?;
        if contender.rolls() {
            contender.begin_rollout(testbed, machines.keys().take(EXCHANGED)).await?;
        }
        Ok(contender)
    }

    /// Begins a rollout in which these Machines have been exchanged.
    async fn begin_rollout(&self, testbed: &Testbed, exchanged: impl Iterator<Item = &String>) -> Result<()> {
        let (kind, name) = (self.group.kind, &self.group.name);
        let strategy = json!({ "type": "OnDelete", "rollingUpdate": null });
        let template = json!({ "spec": { "version": "v1.36.2" } });
        let spec = json!({ "rollout": { "strategy": strategy }, "template": template });
        testbed.objects.patch(kind, name, json!({ "spec": spec })).await?;
        let newest_has = async |size: usize| {
            every(POLL_INTERVAL, &format!("{size} new Machines of {name}"), TIMEOUT, async || {
                let sets = self.machine_sets(testbed).await?;
                ensure!(sets.len() == 2 && sets[1].data["spec"]["replicas"] == size, "MachineSets are {sets:?}");
                Ok(())
            })
            .await
        };
        newest_has(0).await?;
        for machine in exchanged {
            testbed.objects.delete("Machine", machine).await?;
        }
        newest_has(EXCHANGED).await
    }

    fn rolls(&self) -> bool {
        matches!(self.scene, Scene::RolloutNamesOld | Scene::RolloutNamesNew)
    }

    fn row(&self, manager: Manager) -> String {
        let manager = if manager == Manager::Runs { "manager runs" } else { "manager stopped between both calls" };
        let other = match self.scene {
            Scene::Calm => return format!("{}, {manager}", self.group.kind),
            Scene::OtherDeletes => "another Machine is being deleted",
            Scene::OtherAdds => "the size has just grown by one",
            Scene::RolloutNamesOld => "rollout `OnDelete`, of the old MachineSet",
            Scene::RolloutNamesNew => "rollout `OnDelete`, of the new MachineSet",
        };
        format!("{}, {other}", self.group.kind)
    }

    /// Returns the MachineSets of a MachineDeployment, oldest revision first.
    async fn machine_sets(&self, testbed: &Testbed) -> Result<Vec<DynamicObject>> {
        let mut sets = testbed.objects.list("MachineSet", &format!("pool={}", self.group.name)).await?;
        let key = "machinedeployment.clusters.x-k8s.io/revision";
        sets.sort_by_key(|set| set.annotations().get(key).cloned());
        Ok(sets)
    }

    /// Returns the Machines that a round may name; none when the rollout is over.
    async fn candidates(&self, testbed: &Testbed, machines: &Machines) -> Result<Vec<String>> {
        let sets = self.machine_sets(testbed).await?;
        let set = match self.scene {
            Scene::Calm | Scene::OtherDeletes | Scene::OtherAdds => return Ok(machines.keys().cloned().collect()),
            _ if sets[0].data["spec"]["replicas"] == 0 => return Ok(Vec::new()),
            Scene::RolloutNamesOld => sets.first(),
            Scene::RolloutNamesNew => sets.last(),
        };
        let set = set.and_then(|set| set.metadata.uid.as_ref());
        let is_of_set = |machine: &DynamicObject| machine.owner_references().iter().any(|one| Some(&one.uid) == set);
        Ok(machines.iter().filter(|(_, machine)| is_of_set(machine)).map(|(name, _)| name.clone()).collect())
    }

    /// Waits until the controllers have nothing left to do for the group, whatever its size is.
    async fn at_rest(&self, testbed: &Testbed) -> Result<Machines> {
        let what = format!("{} at rest", self.group.name);
        every(POLL_INTERVAL, &what, TIMEOUT, async || {
            let group = testbed.objects.get(self.group.kind, &self.group.name).await?;
            let size = group.data["spec"]["replicas"].as_u64().context("a group without size")?;
            let sets = match self.group.kind {
                "MachineSet" => vec![group.clone()],
                _ => self.machine_sets(testbed).await?,
            };
            for object in sets.iter().chain([&group]) {
                let (spec, status) = (&object.data["spec"], &object.data["status"]);
                let seen = status["observedGeneration"].as_i64() == object.metadata.generation;
                ensure!(seen && status["replicas"] == spec["replicas"], "{:?}: {status}", object.metadata.name);
            }
            let wanted: u64 = sets.iter().filter_map(|set| set.data["spec"]["replicas"].as_u64()).sum();
            let machines = testbed.objects.list("Machine", &format!("pool={}", self.group.name)).await?;
            let runs = |machine: &DynamicObject| {
                machine.metadata.deletion_timestamp.is_none() && machine.data["status"]["phase"] == "Running"
            };
            let all_run = machines.iter().all(runs) && u64::try_from(machines.len())? == size;
            ensure!(wanted == size && all_run, "{wanted} of {size} are wanted, of {} Machines", machines.len());
            Ok(machines.into_iter().map(|machine| (machine.name_any(), machine)).collect())
        })
        .await
    }

    async fn resize(&self, testbed: &Testbed, size: usize) -> Result<()> {
        let patch = Patch::Merge(json!({ "spec": { "replicas": size } }));
        let api = api(testbed, self.group.kind);
        Ok(api.patch_scale(&self.group.name, &PatchParams::default(), &patch).await.map(drop)?)
    }
}

fn api(testbed: &Testbed, kind: &str) -> Api<DynamicObject> {
    let place = Place::of(kind, Contract::V1Beta2);
    Api::namespaced_with(testbed.objects.client(), &testbed.namespace, &place.resource)
}

async fn mark(testbed: &Testbed, machine: &str, value: Value) -> Result<()> {
    testbed.objects.annotate("Machine", machine, json!({ "cluster.x-k8s.io/delete-machine": value })).await
}

/// Deletes a Machine as it was seen, or as it is if it has changed since.
async fn delete(testbed: &Testbed, machine: &DynamicObject) -> Result<()> {
    let api = api(testbed, "Machine");
    let (name, mut seen) = (machine.name_any(), machine.metadata.clone());
    loop {
        let preconditions = Preconditions { uid: seen.uid, resource_version: seen.resource_version };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match api.delete(&name, &parameters).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => seen = api.get(&name).await?.metadata,
            deleted => return deleted.map(drop).with_context(|| format!("deleting Machine {name}")),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeleteFirst => "delete, then lower",
            Self::DeleteAndWait => "delete, wait until it is seen, lower",
            Self::MarkAndDelete => "mark, delete, lower",
            Self::MarkFirst => "mark, then lower",
        })
    }
}
