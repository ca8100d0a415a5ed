//! The recipe of examples/fleet for Secrets with rights on Nodes alone: a shell runs its commands for kubectl on a real
//! API server, which is management and workload cluster in one, with the files of the example, but for names and
//! address of the Cluster. The test writes the token, as kube-controller-manager does.

use std::{ffi::OsString, fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    control_plane::ControlPlane,
    go, helm,
    installed::{Installed, kubeconfig_of},
    objects,
    program::Programs,
    users::base64,
    wait::{SOON, eventually},
    world::World,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tonic::Code;

use crate::fleet_serving::{FLEET, OF_CLUSTER, Testbed, are_refused, cluster, fleet, is_refused, of_cluster};

/// The ServiceAccount of the workload cluster, and the Secret of its token.
const ACCOUNT: &str = "capi-autoscaler-nodes";

/// The recipe's shell commands for one Cluster, in a directory of their own; Helm's come after them.
struct Recipe {
    directory: tempfile::TempDir,
    commands: String,
}

impl Recipe {
    /// Reads the recipe, and copies its files with the names and the address of this Cluster.
    fn of(world: &World, administrator: &Value) -> Result<Self> {
        let readme = fs::read_to_string(format!("{}/README.md", helm::FLEET))?;
        let recipe = readme.split_once("\n## Nodes alone\n").context("the recipe's heading")?.1;
        let block = recipe.split_once("```console\n").and_then(|(_, rest)| rest.split_once("```"));
        let commands = block.context("its first block")?.0.split_once("\nhelm ").context("a command of Helm")?.0;

        let directory = tempfile::tempdir()?;
        let files = directory.path().join("examples/fleet");
        fs::create_dir_all(&files)?;
        fs::write(directory.path().join("prod.kubeconfig"), administrator.to_string())?;
        let server = administrator["clusters"][0]["cluster"]["server"].as_str().context("a server")?;
        let own = [
            ("https://prod.example.com:6443", server),
            ("name: prod-nodes", &format!("name: {}-nodes", world.cluster)),
            ("namespace: team-a", &format!("namespace: {}", world.namespace)),
        ];
        for file in ["nodes-workload.yaml", "nodes-secret.yaml"] {
            let mut text = fs::read_to_string(format!("{}/{file}", helm::FLEET))?;
            for (example, its) in own {
                ensure!(file != "nodes-secret.yaml" || text.contains(example), "{file} has no {example}");
                text = text.replace(example, its);
            }
            fs::write(files.join(file), text)?;
        }
        Ok(Self { directory, commands: commands.to_owned() })
    }

    /// Runs it, with kubectl and the management cluster at hand.
    fn run(&self) -> Result<()> {
        let kubectl = go::components()?.kubectl;
        let path: Vec<PathBuf> = kubectl.parent().map(PathBuf::from).into_iter().collect();
        let system = std::env::var_os("PATH").unwrap_or_default();
        let path: OsString = std::env::join_paths(path.into_iter().chain(std::env::split_paths(&system)))?;
        // Its loop for the token ends, so that a test that fails leaves nothing behind.
        let mut shell = Command::new("timeout");
        let seconds = SOON.as_secs().to_string();
        shell.args([&seconds, "sh", "-euc", &self.commands]).current_dir(self.directory.path());
        shell.env("PATH", path).env("HOME", self.directory.path());
        shell.env("KUBECONFIG", self.directory.path().join("prod.kubeconfig"));
        let output = shell.output().context("running a shell")?;
        ensure!(output.status.success(), "{}\n{}", self.commands, String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

/// Writes the token of the recipe's ServiceAccount into its Secret, once both are there.
async fn write_token(plane: &ControlPlane, authority: &str) -> Result<()> {
    let system = plane.objects("kube-system");
    let token = async || {
        let secret = system.get("Secret", ACCOUNT).await?;
        let account = &secret.metadata.annotations.context("annotations")?["kubernetes.io/service-account.name"];
        kubeconfig_of(plane, "kube-system", account).await
    };
    let kubeconfig = eventually("the recipe's ServiceAccount and Secret", SOON, token).await?;
    let token = kubeconfig["users"][0]["user"]["token"].as_str().context("a token")?;
    let data = json!({ "token": base64(token.as_bytes()), "ca.crt": authority });
    system.patch("Secret", ACCOUNT, json!({ "data": data })).await
}

#[allow(clippy::needless_pass_by_value, reason = "results hand it over")]
fn is_forbidden(error: kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_reads_nodes_by_the_recipe_s_account_which_reads_nothing_else() -> Result<()> {
    let Testbed { plane, program, world, administrator, helm, authority } = Testbed::start().await?;
    let group = cluster(&world, &authority, &administrator).await?;
    let nodes = format!("{}-nodes", world.cluster);
    let consents = of_cluster(&world, true).set("consent.secretName", json!(nodes));
    let of_nodes = fleet(&[&world.namespace]).set("fleet.workloadNodes", json!("{cluster}-nodes"));
    helm.apply("install", &consents)?;
    helm.apply("install", &of_nodes)?;

    let directory = tempfile::tempdir()?;
    let programs = Programs::new(program, directory.path().to_owned());
    let installed = Installed::read(&plane, FLEET).await?;
    let own = installed.kubeconfig(&plane).await?;
    let prepared = installed.prepare_for(directory.path(), &own, (&world.namespace, OF_CLUSTER)).await?;
    let mut provider = prepared.serve(&programs, &[])?;
    provider.ready().await.with_context(|| programs.log_tails())?;
    let files = installed.secret_in(&world.namespace, &format!("{OF_CLUSTER}-client")).await?;
    let caller = prepared.call_with(&provider, &files)?;
    is_refused(&caller, Code::Unavailable, &nodes).await.with_context(|| programs.log_tails())?;

    let recipe = Recipe::of(&world, &administrator)?;
    let root =
        administrator["clusters"][0]["cluster"]["certificate-authority-data"].as_str().context("an authority")?;
    let run = spawn_blocking(move || recipe.run());
    write_token(&plane, root).await?;
    run.await??;
    // The program looks for the Secret again after a growing pause; a restart looks at once.
    drop(provider);
    let mut provider = prepared.serve(&programs, &[])?;
    provider.ready().await.with_context(|| programs.log_tails())?;
    provider.shows(&[&group.id]).await.with_context(|| programs.log_tails())?;
    let in_sync = async || {
        let (_, state) = provider.admin("/debug/clusters").await?;
        let state: Value = serde_json::from_str(&state)?;
        let own = &state["clusters"][0];
        ensure!(own["nodesSynced"] == true && own["nodes"] == 1, "{own}");
        Ok(())
    };
    eventually("its Nodes in sync", SOON, in_sync).await.with_context(|| programs.log_tails())?;

    let kubeconfig = format!("{}-kubeconfig", world.cluster);
    are_refused(own, &[(&world.namespace, kubeconfig.clone())]).await?;
    let account = installed.secret_in(&world.namespace, &nodes).await?;
    let account: Value = serde_yaml::from_slice(&account.get("value").context("the Secret's value")?.0)?;
    are_refused(account.clone(), &[(&world.namespace, kubeconfig), (&world.namespace, nodes)]).await?;
    let (account, all) = (objects::client(serde_json::from_value(account)?).await?, ListParams::default());
    ensure!(Api::<Node>::all(account.clone()).list(&all).await?.items.len() == 1, "it reads the Node");
    ensure!(Api::<Pod>::all(account.clone()).list(&all).await.is_err_and(is_forbidden), "it reads Pods");
    let deleted = Api::<Node>::all(account).delete("none", &DeleteParams::default()).await;
    ensure!(deleted.is_err_and(is_forbidden), "it deletes Nodes");
    Ok(())
}
