//! Kinds that change at run time: the infrastructure's templates vanish, come back and change their version, and
//! Cluster API's kinds are served in one version, the other or both, as before, during and after an upgrade.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    core::Status,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    actor::{self, Script, tolerate},
    network::Port,
    plan::Chance,
    setup,
};

/// The CustomResourceDefinition of the infrastructure's templates.
const TEMPLATES: &str = "cloudmachinetemplates.infrastructure.cluster.x-k8s.io";
const PLURALS: [&str; 5] = ["clusters", "machinedeployments", "machinesets", "machinepools", "machines"];
/// The interval at which the script is polled.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn change(seed: u64) -> bool {
    Chance::new(seed).of("kinds", 0, 0).u32(0..3) == 0
}

/// Runs until it is quiet, and makes sure then that everything is served.
pub(crate) async fn run(port: Port, seed: u64, namespaces: Vec<&'static str>, script: Script) {
    let kinds = Kinds::new(port, namespaces, script);
    let chance = Chance::new(seed);
    // The mean pause: short in some worlds, long in others.
    let mean = [200, 600][chance.of("kinds", 0, 1).usize(0..2)];
    for ordinal in 0.. {
        let mut draw = chance.of("kinds act", 0, ordinal);
        kinds.pause(draw.u64(1..2 * mean)).await;
        if kinds.script.is_quiet() {
            break;
        }
        if !kinds.script.has("kinds", ordinal) {
            continue;
        }
        match draw.u32(0..4) {
            0 => kinds.templates_vanish(draw.u64(1..400)).await,
            1 => kinds.templates_move(draw.u64(1..400)).await,
            _ => kinds.upgrade(&mut draw).await,
        }
    }
    kinds.serve_all().await;
}

struct Kinds {
    port: Port,
    definitions: Api<DynamicObject>,
    /// The namespaces of the templates.
    namespaces: Vec<&'static str>,
    script: Script,
}

impl Kinds {
    fn new(port: Port, namespaces: Vec<&'static str>, script: Script) -> Self {
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let definitions = actor::objects(&port, &kind, None);
        Self { port, definitions, namespaces, script }
    }

    /// Sleeps, and ends early once it is quiet.
    async fn pause(&self, seconds: u64) {
        for _ in 0..seconds {
            if self.script.is_quiet() {
                return;
            }
            sleep(LOOK).await;
        }
    }

    fn report(&self, what: &str, done: Result<()>) {
        match done {
            Ok(()) => self.port.note(format!("kinds: {what}")),
            Err(error) => self.port.note(format!("kinds: {what}: {error:#}")),
        }
    }

    /// Deletes the definition of the templates, with all of them, and creates it again.
    async fn templates_vanish(&self, seconds: u64) {
        let gone = self.definitions.delete(TEMPLATES, &DeleteParams::default()).await;
        self.report("templates vanish", gone.map(drop).map_err(Into::into));
        self.pause(seconds).await;
        self.report("templates come back", self.make_templates().await);
    }

    /// Creates the definition and the templates unless they exist.
    async fn make_templates(&self) -> Result<()> {
        let definition: DynamicObject = serde_json::from_value(setup::definition())?;
        tolerate(self.definitions.create(&PostParams::default(), &definition).await, Status::is_already_exists)?;
        let kind = GroupVersionKind::gvk("infrastructure.cluster.x-k8s.io", "v1beta2", "CloudMachineTemplate");
        for namespace in &self.namespaces {
            let api = actor::objects(&self.port, &kind, Some(namespace));
            for template in setup::templates(namespace) {
                let template = serde_json::from_value(template)?;
                tolerate(api.create(&PostParams::default(), &template).await, Status::is_already_exists)?;
            }
        }
        Ok(())
    }

    /// Serves templates in the other version only, and then as before.
    async fn templates_move(&self, seconds: u64) {
        self.report("templates are of v1beta1", self.serve(TEMPLATES, [false, true]).await);
        self.pause(seconds).await;
        self.report("templates are of v1beta2", self.serve(TEMPLATES, [true, false]).await);
    }

    /// Serves Cluster API's kinds in other versions, one after the other, for a while.
    async fn upgrade(&self, draw: &mut Rng) {
        for _ in 0..draw.u32(1..4) {
            let served = [[true, false], [false, true], [true, true]][draw.usize(0..3)];
            let mut plurals = PLURALS;
            draw.shuffle(&mut plurals);
            let most = [1, 3, 30][draw.usize(0..3)];
            for plural in plurals {
                let done = self.serve(&format!("{plural}.cluster.x-k8s.io"), served).await;
                self.report(&format!("{plural} in v1beta2, v1beta1: {served:?}"), done);
                self.pause(draw.u64(0..most)).await;
            }
            self.pause(draw.u64(10..300)).await;
        }
        if draw.bool() {
            self.serve_core().await;
        }
    }

    async fn serve_core(&self) {
        for plural in PLURALS {
            let done = self.serve(&format!("{plural}.cluster.x-k8s.io"), [true, true]).await;
            self.report(&format!("{plural} in both versions"), done);
        }
    }

    async fn serve_all(&self) {
        self.serve_core().await;
        let done = self.serve(TEMPLATES, [true, false]).await;
        self.report("templates are of v1beta2", done);
        self.report("templates are there", self.make_templates().await);
    }

    /// Serves a kind in v1beta2 or not, and in v1beta1 or not.
    async fn serve(&self, name: &str, [newer, older]: [bool; 2]) -> Result<()> {
        let definition = serde_json::to_value(self.definitions.get(name).await?)?;
        let mut versions = definition["spec"]["versions"].clone();
        for version in versions.as_array_mut().into_iter().flatten() {
            version["served"] = json!(if version["name"] == "v1beta2" { newer } else { older });
        }
        let patch: Value = json!({"spec": {"versions": versions}});
        self.definitions.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }
}
