//! Values of annotations: valid ones, invalid ones, and those that CEL can't judge.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};

/// The verdicts on an object: its annotations are ignored or not.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// Neither reports a problem.
    Fine,
    /// Both report the same annotations.
    SetAside,
    /// Only the program reports them, since the policy can't.
    SetAsideInSilence,
}

use Verdict::{Fine, SetAside, SetAsideInSilence};

macro_rules! size {
    ($name:literal) => {
        concat!("cluster.x-k8s.io/cluster-api-autoscaler-node-group-", $name, "-size")
    };
}
macro_rules! option {
    ($name:literal) => {
        concat!("cluster.x-k8s.io/autoscaling-options-", $name)
    };
}
macro_rules! capacity {
    ($name:literal) => {
        concat!("capacity.cluster-autoscaler.kubernetes.io/", $name)
    };
}
macro_rules! own {
    ($name:literal) => {
        concat!("capacity.capi-autoscaler-provider.io/", $name)
    };
}

const GRACE: &str = "capi-autoscaler-provider.io/capacity-error-grace";
const ROLLOUTS: &str = "capi-autoscaler-provider.io/scale-down-while-rolling-out";
const LONG: &str = "a123456789b123456789c123456789d123456789e123456789f123456789x123";

type Row = (Verdict, &'static [(&'static str, &'static str)]);

/// The annotations of each row, besides those of a node group with max size 5.
pub(super) const ROWS: &[Row] = &[
    (Fine, &[]),
    // Sizes.
    (Fine, &[(size!("min"), "+1")]),
    (Fine, &[(size!("min"), "-0"), (size!("max"), "0000000000000005")]),
    (Fine, &[(size!("min"), "5")]),
    (Fine, &[(size!("max"), "2147483647")]),
    (SetAside, &[(size!("min"), "6")]),
    (SetAside, &[(size!("min"), "-1")]),
    (SetAside, &[(size!("max"), "")]),
    (SetAside, &[(size!("max"), " 5")]),
    (SetAside, &[(size!("max"), "0x5")]),
    (SetAside, &[(size!("max"), "2147483648")]),
    (SetAside, &[(size!("max"), "99999999999999999999999999")]),
    (SetAside, &[(size!("min"), "one"), (size!("max"), "two")]),
    // With invalid sizes only the sizes are reported.
    (SetAside, &[(size!("min"), "6"), (capacity!("cpu"), "x")]),
    // Options.
    (Fine, &[(option!("scaledownutilizationthreshold"), "-1")]),
    (Fine, &[(option!("scaledownutilizationthreshold"), "5E-1")]),
    (Fine, &[(option!("scaledownutilizationthreshold"), ".5")]),
    (Fine, &[(option!("scaledownunneededtime"), "")]),
    (Fine, &[(option!("scaledownunneededtime"), "1H30M")]),
    (Fine, &[(option!("scaledownunneededtime"), "1.5h.5m")]),
    (Fine, &[(option!("scaledownunreadytime"), "1\u{b5}s1\u{3bc}s1\u{39c}s")]),
    (Fine, &[(option!("maxnodestartuptime"), "-0")]),
    (Fine, &[(option!("zeroormaxnodescaling"), "T")]),
    (Fine, &[(option!("unknown"), "")]),
    (SetAside, &[(option!("unknown"), "1")]),
    (SetAside, &[(option!("scaleDownUnneededTime"), "10m")]),
    (SetAside, &[(option!("scaledownutilizationthreshold"), "half")]),
    (SetAside, &[(option!("scaledownutilizationthreshold"), "NaN")]),
    (SetAside, &[(option!("scaledowngpuutilizationthreshold"), "inf")]),
    (SetAside, &[(option!("scaledowngpuutilizationthreshold"), "50%")]),
    (SetAside, &[(option!("scaledownunneededtime"), "10")]),
    (SetAside, &[(option!("scaledownunneededtime"), "1d")]),
    (SetAside, &[(option!("scaledownunreadytime"), "1h-30m")]),
    (SetAside, &[(option!("maxnodeprovisiontime"), "-5m")]),
    (SetAside, &[(option!("maxnodeprovisiontime"), "9999999999h")]),
    (SetAside, &[(option!("maxnodeprovisiontime"), "1h99999999999s")]),
    (SetAside, &[(option!("ignoredaemonsetsutilization"), "yes")]),
    (SetAsideInSilence, &[(option!("scaledownutilizationthreshold"), "1e999")]),
    (SetAsideInSilence, &[(option!("maxnodeprovisiontime"), "9999999h")]),
    (SetAsideInSilence, &[(option!("maxnodeprovisiontime"), "-0.5h")]),
    // Capacity.
    (Fine, &[(capacity!("cpu"), "4"), (capacity!("memory"), "16Gi"), (capacity!("ephemeral-disk"), "0")]),
    (Fine, &[(capacity!("cpu"), "1500m"), (capacity!("memory"), "1.5e9"), (capacity!("ephemeral-disk"), "-0")]),
    (Fine, &[(capacity!("cpu"), "5."), (capacity!("memory"), ""), (capacity!("maxPods"), "0")]),
    (Fine, &[(capacity!("cpu"), "0.0000000001"), (capacity!("maxPods"), "+110")]),
    (SetAside, &[(capacity!("cpu"), "0")]),
    (SetAside, &[(capacity!("memory"), "-0.0Gi")]),
    (SetAside, &[(capacity!("memory"), "0e5")]),
    (SetAside, &[(capacity!("cpu"), "-1")]),
    (SetAside, &[(capacity!("ephemeral-disk"), "-0.0000000000001")]),
    (SetAside, &[(capacity!("memory"), "16 Gi")]),
    (SetAside, &[(capacity!("memory"), "16GB")]),
    (SetAside, &[(capacity!("memory"), "Gi")]),
    (SetAside, &[(capacity!("memory"), "1e")]),
    (SetAside, &[(capacity!("maxPods"), "110.0")]),
    (SetAside, &[(capacity!("maxPods"), "-1")]),
    (SetAside, &[(capacity!("maxPods"), "99999999999999999999")]),
    (SetAside, &[(capacity!("core"), "4")]),
    (SetAside, &[(capacity!("CPU"), "")]),
    (SetAsideInSilence, &[(capacity!("maxPods"), "9999999999999999999")]),
    (SetAsideInSilence, &[(capacity!("cpu"), "1e9999999999999999999")]),
    // GPUs and drivers.
    (Fine, &[(capacity!("gpu-type"), "nvidia.com/gpu"), (capacity!("gpu-count"), "2")]),
    (Fine, &[(capacity!("gpu-type"), "gpu"), (capacity!("gpu-count"), "2000m")]),
    (Fine, &[(capacity!("gpu-type"), ""), (capacity!("gpu-count"), "")]),
    (Fine, &[(capacity!("dra-driver"), "gpu.example.com"), (capacity!("gpu-count"), "128")]),
    (Fine, &[(capacity!("gpu-type"), "a/b"), (capacity!("gpu-count"), "0.9999999999")]),
    (SetAside, &[(capacity!("gpu-type"), "nvidia.com/gpu")]),
    (SetAside, &[(capacity!("gpu-count"), "2")]),
    (SetAside, &[(capacity!("gpu-count"), "some"), (capacity!("dra-driver"), "gpu.example.com")]),
    (SetAside, &[(capacity!("gpu-type"), "NVIDIA.com/gpu"), (capacity!("gpu-count"), "some")]),
    (SetAside, &[(capacity!("gpu-type"), "a/b/c"), (capacity!("gpu-count"), "1")]),
    (SetAside, &[(capacity!("gpu-type"), "a/b"), (capacity!("gpu-count"), "0.5")]),
    (SetAside, &[(capacity!("gpu-type"), "a/b"), (capacity!("gpu-count"), "1500m")]),
    (SetAside, &[(capacity!("dra-driver"), "gpu.example.com")]),
    (SetAside, &[(capacity!("dra-driver"), "GPU.example.com"), (capacity!("gpu-count"), "1")]),
    (SetAside, &[(capacity!("dra-driver"), "gpu example"), (capacity!("gpu-count"), "1")]),
    (SetAside, &[(capacity!("dra-driver"), LONG), (capacity!("gpu-count"), "1")]),
    (SetAside, &[(capacity!("dra-driver"), "gpu.example.com"), (capacity!("gpu-count"), "129")]),
    (SetAside, &[(capacity!("dra-driver"), "gpu.example.com"), (capacity!("gpu-count"), "1000")]),
    (SetAsideInSilence, &[(capacity!("dra-driver"), "gpu.example.com"), (capacity!("gpu-count"), "1k")]),
    (SetAsideInSilence, &[(capacity!("gpu-type"), "a/b"), (capacity!("gpu-count"), "0.3Ki")]),
    (Fine, &[(capacity!("csi-driver"), " Disk.CSI.example.com=25 ,b=0,,")]),
    (SetAside, &[(capacity!("csi-driver"), "ebs.csi.aws.com")]),
    (SetAside, &[(capacity!("csi-driver"), "a=1,-ebs=25")]),
    (SetAside, &[(capacity!("csi-driver"), "ebs=-1")]),
    (SetAside, &[(capacity!("csi-driver"), "ebs=many")]),
    (SetAside, &[(capacity!("csi-driver"), "a123456789b123456789c123456789d123456789e123456789f123456789x123=1")]),
    (SetAsideInSilence, &[(capacity!("csi-driver"), "ebs=2147483648")]),
    // Labels and taints.
    (Fine, &[(capacity!("labels"), "a=b,example.com/c=d,e=, f=g\u{2003},\u{a0},")]),
    (SetAside, &[(capacity!("labels"), "a")]),
    (SetAside, &[(capacity!("labels"), "a=b,=c")]),
    (SetAside, &[(capacity!("labels"), "a=b=c")]),
    (SetAside, &[(capacity!("labels"), "Example.com/a=b")]),
    (SetAside, &[(capacity!("labels"), "a/b/c=d")]),
    (SetAside, &[(capacity!("labels"), "a =b")]),
    (SetAside, &[(capacity!("labels"), "a=b\u{200b}")]),
    (SetAside, &[(capacity!("labels"), "a=a123456789b123456789c123456789d123456789e123456789f123456789x123")]),
    (Fine, &[(capacity!("taints"), "a=b:NoSchedule,a:NoExecute, example.com/a=:PreferNoSchedule ,")]),
    (SetAside, &[(capacity!("taints"), "a=b")]),
    (SetAside, &[(capacity!("taints"), "a=b:noschedule")]),
    (SetAside, &[(capacity!("taints"), "a:b:NoSchedule")]),
    (SetAside, &[(capacity!("taints"), "=b:NoSchedule")]),
    (SetAside, &[(capacity!("taints"), "a=b=c:NoSchedule")]),
    (SetAside, &[(capacity!("taints"), "a:NoSchedule :")]),
    // This program's own annotations.
    (Fine, &[(own!("resources"), "nvidia.com/gpu=2, hugepages-2Mi=1Gi,a=0,b=2000m")]),
    (SetAside, &[(own!("resources"), "cpu=4")]),
    (SetAside, &[(own!("resources"), "a=1, pods=4")]),
    (SetAside, &[(own!("resources"), "a=1.5")]),
    (SetAside, &[(own!("resources"), "a=1,b=1500m ,c=1")]),
    (SetAside, &[(own!("resources"), "a=-1")]),
    (SetAside, &[(own!("resources"), "a")]),
    (SetAside, &[(own!("resources"), "a=lots")]),
    (SetAsideInSilence, &[(own!("resources"), "a=0.3Ki")]),
    (Fine, &[(own!("overhead"), "cpu=100m"), (capacity!("cpu"), "4")]),
    (SetAside, &[(own!("overhead"), "cpu=-1"), (capacity!("cpu"), "4")]),
    (SetAside, &[(own!("overhead"), "memory")]),
    // These depend on the Node's capacity.
    (SetAsideInSilence, &[(own!("overhead"), "cpu=5"), (capacity!("cpu"), "4")]),
    (SetAsideInSilence, &[(own!("overhead"), "memory=1")]),
    (Fine, &[(own!("price-per-hour"), " 0.096\n")]),
    (Fine, &[(own!("price-per-hour"), "1000000000")]),
    (Fine, &[(own!("price-per-hour"), "")]),
    (SetAside, &[(own!("price-per-hour"), "1000000000.1")]),
    (SetAside, &[(own!("price-per-hour"), "999999999999999999999999999999")]),
    (SetAside, &[(own!("price-per-hour"), "-1")]),
    (SetAside, &[(own!("price-per-hour"), "1e3")]),
    (SetAside, &[(own!("price-per-hour"), ".5")]),
    (Fine, &[(own!("zone-from-failure-domain"), "false")]),
    (SetAside, &[(own!("zone-from-failure-domain"), "")]),
    (SetAside, &[(own!("zone-from-failure-domain"), "False")]),
    (SetAside, &[(own!("price"), "1")]),
    (Fine, &[(ROLLOUTS, "true")]),
    (SetAside, &[(ROLLOUTS, "")]),
    (SetAside, &[(ROLLOUTS, "yes")]),
    (Fine, &[(GRACE, " Never ")]),
    (Fine, &[(GRACE, "0")]),
    (Fine, &[(GRACE, " ")]),
    (SetAside, &[(GRACE, "5")]),
    (SetAside, &[(GRACE, "5M")]),
    (SetAside, &[(GRACE, "-1s")]),
    (SetAside, &[(GRACE, "soon")]),
    // Several problems at once.
    (
        SetAside,
        &[(capacity!("cpu"), "x"), (capacity!("labels"), "x"), (own!("x"), "x"), (GRACE, "x"), (option!("x"), "x")],
    ),
];

/// Kept inputs of the fuzzers of these parsers.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/fuzz/corpus-kept");

/// Returns the values of the rows, those of the kept corpus, and small mutations of both: the same in each run.
pub(super) fn texts() -> Result<Vec<String>> {
    let mut texts: Vec<String> =
        ROWS.iter().flat_map(|(_, annotations)| annotations.iter()).map(|(_, value)| (*value).to_owned()).collect();
    for of in ["annotations", "duration", "quantity", "taint"] {
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(format!("{CORPUS}/{of}")).with_context(|| of.to_owned())? {
            files.push(entry?.path());
        }
        files.sort();
        for file in files {
            let bytes = fs::read(&file)?;
            let text = String::from_utf8_lossy(&bytes);
            texts.extend(text.lines().map(|line| line.split_once('=').map_or(line, |(_, value)| value).to_owned()));
            texts.extend(text.lines().map(str::to_owned));
        }
    }
    texts.sort();
    texts.dedup();
    let mut random = fastrand::Rng::with_seed(21);
    let seeds = texts.clone();
    texts.extend((0..MUTATED).map(|_| mutated(&seeds, &mut random)));
    texts.sort();
    texts.dedup();
    Ok(texts)
}

const MUTATED: usize = 150;
/// Characters and words with a meaning to the parsers.
const PIECES: [&str; 24] = [
    "0",
    "1",
    "9",
    ".",
    "-",
    "+",
    "e",
    "E",
    "m",
    "Ki",
    "h",
    "s",
    ",",
    "=",
    ":",
    "/",
    " ",
    "\u{a0}",
    "\u{b5}s",
    "a",
    "Z",
    "_",
    "NoSchedule",
    "5",
];

/// Returns a text with one to three pieces inserted, removed or replaced.
fn mutated(seeds: &[String], random: &mut fastrand::Rng) -> String {
    let mut text: Vec<char> = seeds[random.usize(..seeds.len())].chars().take(200).collect();
    for _ in 0..random.usize(1..=3) {
        let place = random.usize(..=text.len());
        let end = (place + random.usize(..=1)).min(text.len());
        let piece = if random.u8(..4) == 0 { "" } else { PIECES[random.usize(..PIECES.len())] };
        text.splice(place..end, piece.chars());
    }
    text.into_iter().collect()
}
