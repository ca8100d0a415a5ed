//! The Jobs that label a Cluster: their rights, and as Helm's hooks on a real API server, where the test plays
//! the kubelet: it runs kubectl with the arguments and the ServiceAccount of the container.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
    sync::Arc,
};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{
    control_plane::ControlPlane,
    go,
    helm::{Helm, Values},
    installed::kubeconfig_of,
    objects::Objects,
    wait::{Permanent, SOON, eventually},
    world::World,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::{JoinHandle, spawn_blocking};

/// The release of the chart for one Cluster, and who runs the Jobs of its hooks.
pub(crate) struct Labelled<'a> {
    pub(crate) helm: Arc<Helm>,
    pub(crate) plane: &'a ControlPlane,
    pub(crate) world: &'a World,
    pub(crate) release: &'a str,
}

impl Labelled<'_> {
    fn objects(&self) -> &Objects {
        &self.world.objects
    }

    /// Starts helm, which waits for its hooks.
    fn begin(&self, run: impl FnOnce(&Helm) -> Result<String> + Send + 'static) -> JoinHandle<Result<String>> {
        let helm = Arc::clone(&self.helm);
        spawn_blocking(move || run(&helm))
    }

    /// Upgrades the release to these values; `labelled` sees the Cluster after its Job.
    pub(crate) async fn upgrade(&self, values: Values, labelled: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
        self.admits_restricted_pods_alone().await?;
        let mut upgrade = self.begin(move |helm| helm.apply("upgrade", &values));
        let hook = Hook::of(self, "label", &mut upgrade).await?;
        hook.satisfies_pod_security(self).await?;
        for verb in ["patch", "get"] {
            hook.needs(self, verb).await?;
        }
        hook.reaches_no_other_cluster(self).await?;
        hook.succeeds().await?;
        labelled().await?;
        hook.complete(self).await?;
        upgrade.await??;
        self.keeps_no_hook().await
    }

    /// Uninstalls the release; `unlabelled` sees the Cluster after its Job.
    pub(crate) async fn uninstall(&self, unlabelled: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
        let (release, namespace) = (self.release.to_owned(), self.world.namespace.clone());
        let mut uninstall = self.begin(move |helm| helm.run(&["uninstall", &release, "--namespace", &namespace]));
        let hook = Hook::of(self, "unlabel", &mut uninstall).await?;
        for verb in ["patch", "list"] {
            hook.needs(self, verb).await?;
        }
        hook.succeeds().await?;
        unlabelled().await?;
        // The Cluster may be gone before its release, which must go then too.
        self.objects().delete("Cluster", &self.world.cluster).await?;
        hook.succeeds().await?;
        hook.complete(self).await?;
        uninstall.await??;
        self.keeps_no_hook().await
    }

    async fn admits_restricted_pods_alone(&self) -> Result<()> {
        let labels = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
        self.objects().patch("Namespace", &self.world.namespace, labels).await?;
        let container = json!({ "name": "kubectl", "image": "kubectl" });
        let pod = json!({ "kind": "Pod", "metadata": { "name": "plain" }, "spec": { "containers": [container] } });
        eventually("restricted Pod Security", SOON, async || match self.objects().create(pod.clone()).await {
            Ok(_) => {
                self.objects().remove("Pod", "plain").await?;
                bail!("a Pod without a security context is admitted")
            }
            Err(error) => {
                ensure!(format!("{error:#}").contains("violates PodSecurity"), "{error:#}");
                Ok(())
            }
        })
        .await
    }

    async fn keeps_no_hook(&self) -> Result<()> {
        for kind in ["Job", "ServiceAccount", "Role", "RoleBinding"] {
            for object in self.objects().list(kind, "").await? {
                let name = object.metadata.name.unwrap_or_default();
                ensure!(!name.ends_with("label"), "{kind} {name} of a hook stays");
            }
        }
        Ok(())
    }
}

/// The Job of one hook, which helm waits for.
struct Hook {
    name: String,
    account: String,
    pod: Value,
    kubectl: PathBuf,
    files: TempDir,
}

impl Hook {
    /// Waits until helm has created the Job, and gets a token of its ServiceAccount.
    async fn of(labelled: &Labelled<'_>, suffix: &str, helm: &mut JoinHandle<Result<String>>) -> Result<Self> {
        let name = format!("{}-{suffix}", labelled.release);
        let job = eventually(&format!("Job {name}"), SOON, async || {
            if helm.is_finished() {
                bail!(Permanent(format!("helm has ended without a Job: {:?}", (&mut *helm).await)));
            }
            labelled.objects().get("Job", &name).await
        })
        .await?;
        let pod = job.data["spec"]["template"]["spec"].clone();
        let account = pod["serviceAccountName"].as_str().context("no ServiceAccount")?.to_owned();
        let kubeconfig = kubeconfig_of(labelled.plane, &labelled.world.namespace, &account).await?;
        let files = tempfile::Builder::new().prefix("capi-e2e-label-").tempdir()?;
        fs::write(files.path().join("kubeconfig"), kubeconfig.to_string())?;
        let hook = Self { name, account, pod, kubectl: go::components()?.kubectl, files };
        hook.is_of_the_version_that_runs_here()?;
        Ok(hook)
    }

    fn is_of_the_version_that_runs_here(&self) -> Result<()> {
        let version = self.run(&["version", "--client", "--output=json"])?;
        let version: Value = serde_json::from_slice(&version.stdout)?;
        let version = version["clientVersion"]["gitVersion"].as_str().context("kubectl without a version")?;
        let image = &self.pod["containers"][0]["image"];
        ensure!(*image == format!("registry.k8s.io/kubectl:{version}"), "kubectl {version} runs here, not {image}");
        Ok(())
    }

    fn arguments(&self) -> Result<Vec<String>> {
        ensure!(self.pod["containers"][0]["command"].is_null(), "the image's entry point is kubectl");
        Ok(serde_json::from_value(self.pod["containers"][0]["args"].clone())?)
    }

    /// Runs kubectl as the container does, with a root file system that it can't write.
    fn run<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Result<Output> {
        let mut command = Command::new(&self.kubectl);
        command.args(arguments).env_clear().env("HOME", "/proc/nowhere");
        command.env("KUBECONFIG", self.files.path().join("kubeconfig")).output().context("running kubectl")
    }

    fn run_container(&self) -> Result<Output> {
        self.run(&self.arguments()?)
    }

    /// Waits until the container ends well: rights come into force with a delay.
    async fn succeeds(&self) -> Result<()> {
        eventually(&format!("{} runs", self.name), SOON, async || {
            let output = self.run_container()?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Ok(())
        })
        .await
    }

    /// Fails unless the Job fails without one of its rights. It writes nothing where nothing is left to change: the
    /// right to write comes first.
    async fn needs(&self, labelled: &Labelled<'_>, verb: &str) -> Result<()> {
        let role = labelled.objects().get("Role", &self.account).await?;
        let before = role.data["rules"].clone();
        let mut rules = before.clone();
        rules[0]["verbs"].as_array_mut().context("a rule without verbs")?.retain(|one| one != verb);
        ensure!(rules != before, "{verb} isn't granted");
        labelled.objects().patch("Role", &self.account, json!({ "rules": rules })).await?;
        let (cluster, namespace) = (&labelled.world.cluster, &labelled.world.namespace);
        let cluster = format!("clusters.cluster.x-k8s.io/{cluster}");
        eventually(&format!("{verb} is revoked"), SOON, async || {
            let output = self.run(&["auth", "can-i", verb, &cluster, "--namespace", namespace])?;
            ensure!(output.stdout.starts_with(b"no"), "{}", String::from_utf8_lossy(&output.stdout));
            Ok(())
        })
        .await?;
        let output = self.run_container()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let denied = !output.status.success() && said.contains(&format!("cannot {verb}"));
        ensure!(denied, "{} without {verb} ends with {}: {said}", self.name, output.status);
        labelled.objects().patch("Role", &self.account, json!({ "rules": before })).await?;
        self.succeeds().await
    }

    async fn reaches_no_other_cluster(&self, labelled: &Labelled<'_>) -> Result<()> {
        let (objects, namespace) = (labelled.objects(), &labelled.world.namespace);
        let cluster = json!({
            "kind": "Cluster",
            "metadata": { "name": "another" },
            "spec": { "clusterNetwork": { "serviceDomain": "cluster.local" } },
        });
        objects.create(cluster).await?;
        let arguments = self.arguments()?;
        let of_another = |argument: &String| argument.replace(&labelled.world.cluster, "another");
        let another: Vec<String> = arguments.iter().map(of_another).collect();
        ensure!(another != arguments, "{arguments:?} don't name the Cluster");
        let all = ["get", "clusters.cluster.x-k8s.io", "--namespace", namespace].map(str::to_owned).to_vec();
        let secrets = ["get", "secrets", "--namespace", namespace].map(str::to_owned).to_vec();
        for arguments in [another, all, secrets] {
            let output = self.run(&arguments)?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(!output.status.success() && said.contains("Forbidden"), "kubectl {arguments:?}: {said}");
        }
        objects.delete("Cluster", "another").await
    }

    async fn satisfies_pod_security(&self, labelled: &Labelled<'_>) -> Result<()> {
        let pod = json!({ "kind": "Pod", "metadata": { "name": self.name }, "spec": self.pod });
        labelled.objects().create(pod).await.context("a Pod of the Job")?;
        labelled.objects().remove("Pod", &self.name).await
    }

    /// Ends the Job as its controller does.
    async fn complete(&self, labelled: &Labelled<'_>) -> Result<()> {
        let now = "2026-01-01T00:00:00Z";
        let condition = |kind: &str| json!({ "type": kind, "status": "True", "reason": "CompletionsReached", "lastTransitionTime": now });
        let status = json!({
            "startTime": now,
            "completionTime": now,
            "succeeded": 1,
            "ready": 0,
            "terminating": 0,
            "uncountedTerminatedPods": {},
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
        });
        labelled.objects().patch_status("Job", &self.name, status).await
    }
}
