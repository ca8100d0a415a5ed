//! Tests of the whole program's status page on a sandbox in a real browser, at the widths of a phone and of a desktop, light and dark. They need Chromium:
//! without the variable CHROMIUM, which names its binary, the test is skipped with a message. `UPDATE_DOCS=1` renews
//! the screenshots in `docs/images`.

mod browser;

use std::{
    env, fs,
    io::{self, Write as _},
    path::Path,
};

use serde_json::{Value, json};
use testkit::{get, until};

use self::browser::{Browser, Screen};
use crate::world::{World, behaving, cluster, deployment};

const HOSTILE: &str = "<script>document.title = 'ran'</script><img src=x onerror=\"document.title = 'ran'\">";
const PHONE: (u32, u32) = (390, 844);
const DESKTOP: (u32, u32) = (1280, 860);
/// The contrast that WCAG requires of text at level AA; large text may have less.
const CONTRAST: f64 = 4.5;
/// The size below which a screenshot is blank.
const BLANK: usize = 12_000;
/// A script that returns the lowest contrast of any text with its background, and its place.
const LEAST_CONTRAST: &str = r"(() => {
  const channels = (text) => text.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  let least = [99, ''];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || element.getClientRects().length === 0) continue;
    const [a, b] = [light(channels(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least[0]) least = [ratio, texts.currentNode.data];
  }
  return least;
})()";

impl World {
    async fn refresh(&self) {
        self.client().await.refresh(proto::RefreshRequest {}).await.unwrap();
    }

    /// Returns a page as HTML.
    async fn page(&self, path: &str) -> String {
        let (status, body) = get(&self.admin(), path).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    fn admin(&self) -> String {
        self.server.admin_address().unwrap().to_string()
    }
}

/// Removes the capacity annotations, and sets the kind of its infrastructure template.
fn of_template(mut deployment: Value, kind: &str) -> Value {
    deployment["metadata"]["annotations"].as_object_mut().unwrap().retain(|key, _| !key.starts_with("capacity."));
    deployment["spec"]["template"]["spec"]["infrastructureRef"] =
        json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": deployment["metadata"]["name"] });
    deployment
}

/// Returns an infrastructure template that publishes its capacity.
fn template(kind: &str, name: &str) -> Value {
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

/// Returns groups of each state, one of which tries to run a script.
fn fleet() -> Vec<Value> {
    let min = |size: &str| json!({ "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": size });
    let mut hostile = deployment("zz-hostile", 1, min(HOSTILE));
    hostile["spec"]["template"]["metadata"]["labels"] = json!({ "team": HOSTILE });
    let mut labelled = deployment("zz-labelled", 2, min("1"));
    labelled["spec"]["template"]["metadata"]["labels"]["node.cluster.x-k8s.io/team"] = HOSTILE.into();
    let mut paused = deployment("paused", 2, json!({}));
    paused["metadata"]["annotations"]["cluster.x-k8s.io/paused"] = "".into();
    let options = json!({
        "cluster.x-k8s.io/autoscaling-options-scaledownunneededtime": "soon",
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "2",
    });
    vec![
        cluster(),
        deployment("workers", 4, min("2")),
        deployment("edge", 3, min("3")),
        deployment("batch", 0, min("0")),
        deployment("tuned", 2, options),
        deployment("rolling", 3, min("1")),
        behaving(of_template(deployment("gpus", 0, min("0")), "DevMachineTemplate"), "no-capacity"),
        template("DevMachineTemplate", "gpus"),
        deployment("wrong", 1, json!({ "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "ten" })),
        paused,
        hostile,
        labelled,
    ]
}

/// Starts the fleet and lets time pass: one group grows, one rolls out, one has no capacity, and one command was
/// refused.
async fn busy() -> World {
    let world = World::start(fleet(), &[]).await;
    world.pass(60).await;
    world.refresh().await;
    let mut client = world.client().await;
    for (name, delta) in [("workers", 2), ("gpus", 2), ("edge", 1)] {
        let id = format!("MachineDeployment/team-a/{name}");
        client.node_group_increase_size(proto::NodeGroupIncreaseSizeRequest { id, delta }).await.unwrap();
    }
    world.pass(80).await;
    let id = "MachineDeployment/team-a/workers".to_owned();
    client.node_group_increase_size(proto::NodeGroupIncreaseSizeRequest { id: id.clone(), delta: 1 }).await.unwrap();
    let delta = 40;
    client.node_group_increase_size(proto::NodeGroupIncreaseSizeRequest { id, delta }).await.unwrap_err();
    world.change(
        "machinedeployments",
        "rolling",
        json!({ "spec": { "template": { "spec": { "version": "v1.36.0" } } } }),
    );
    world.pass(0).await;
    until("all of it on the page", async || {
        let page = world.page("/").await;
        ["rolling out", "failed instances", "last command refused"].iter().all(|it| page.contains(it)).then_some(())
    })
    .await;
    world.refresh().await;
    world
}

/// Asserts that a page is readable on a screen and that nothing in it ran. Returns a screenshot.
fn look(browser: &mut Browser, url: &str, (width, height): (u32, u32), dark: bool) -> Vec<u8> {
    let case = format!("{url} at {width}, dark: {dark}");
    browser.open(url, Screen { width, height, dark });
    let widest = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
    assert!(widest <= u64::from(width), "{case}: {widest} wide");
    assert_eq!(browser.value("document.scripts.length + document.images.length"), 0, "{case}");
    assert_ne!(browser.value("document.title"), "ran", "{case}");
    let least = browser.value(LEAST_CONTRAST);
    assert!(least[0].as_f64().unwrap() >= CONTRAST, "{case}: contrast {least}");
    let background = browser.value("getComputedStyle(document.body).backgroundColor");
    let lightest =
        background.as_str().unwrap().split(|c: char| !c.is_ascii_digit()).filter_map(|it| it.parse().ok()).max();
    let lightest: u32 = lightest.unwrap();
    assert_eq!(lightest < 100, dark, "{case}: {background}");
    let screenshot = browser.screenshot();
    assert!(screenshot.starts_with(b"\x89PNG") && screenshot.len() > BLANK, "{case}: {} bytes", screenshot.len());
    screenshot
}

fn text(browser: &mut Browser) -> String {
    browser.value("document.body.innerText").as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_are_readable_at_any_width_in_light_and_dark_and_run_nothing() {
    let Some(binary) = env::var("CHROMIUM").ok().filter(|binary| !binary.is_empty()) else {
        // Writes past the output capture of tests, since a silently skipped test looks like a passed one.
        let name = "the_pages_are_readable_at_any_width_in_light_and_dark_and_run_nothing";
        let _ = writeln!(io::stderr(), "skipped: {name}: set CHROMIUM to the binary of Chromium");
        return;
    };
    let world = busy().await;
    let admin = world.admin();
    let seen = tokio::task::spawn_blocking(move || {
        let mut browser = Browser::start(&binary);
        let url = |path: &str| format!("http://{admin}{path}");
        let mut screenshots = Vec::new();
        for (page, path) in [("overview", "/"), ("group", "/groups/MachineDeployment/team-a/workers")] {
            for (device, size) in [("phone", PHONE), ("desktop", DESKTOP)] {
                let [light, dark] = [false, true].map(|dark| look(&mut browser, &url(path), size, dark));
                assert_ne!(light, dark, "{path} looks the same in light and dark");
                screenshots
                    .extend([(format!("{page}-{device}-light"), light), (format!("{page}-{device}-dark"), dark)]);
            }
        }
        for name in ["zz-hostile", "zz-labelled", "gpus", "rolling", "paused"] {
            for size in [PHONE, DESKTOP] {
                look(&mut browser, &url(&format!("/groups/MachineDeployment/team-a/{name}")), size, true);
            }
        }
        look(&mut browser, &url("/groups/MachineDeployment/team-a/zz-labelled"), PHONE, false);
        let label = text(&mut browser);
        look(&mut browser, &url("/"), DESKTOP, false);
        (screenshots, label, text(&mut browser))
    });
    let (screenshots, label, overview) = seen.await.unwrap();
    assert!(label.contains("<script>document.title"), "a hostile label is shown as text: {label}");
    for text in
        ["MachineDeployment/team-a/workers", "last command refused", "rolling out", "failed instances", "<script>"]
    {
        assert!(overview.contains(text), "{text}: {overview}");
    }
    if env::var_os("UPDATE_DOCS").is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images");
        fs::create_dir_all(&folder).unwrap();
        for kept in ["overview-desktop-light", "overview-phone-dark", "group-desktop-dark", "group-phone-light"] {
            let (_, screenshot) = screenshots.iter().find(|(name, _)| name == kept).unwrap();
            fs::write(folder.join(format!("status-{kept}.png")), screenshot).unwrap();
        }
    }
    world.stop().await;
}
