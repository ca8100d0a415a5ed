//! New files take effect without a failed call, and invalid files don't take effect.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

const RELOADS: &str = "tls_reloads_total{result=\"ok\"}";
const FAILING: &str = "tls_reload_failing";
const EXPIRY: &str = "tls_certificate_expiry_timestamp_seconds{certificate=\"server\"}";

/// A client that trusts both authorities calls without pause, on one connection and on new ones, while certificate, key
/// and client authority change several times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_under_load_fails_no_call() {
    let mut running = Running::start(boundless()).await;
    let client = running.client(&[NAME]);
    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (standing, stops, counts) = (client.connect(&running.grpc).await.unwrap(), stop.clone(), asked.clone());
    let standing = tokio::spawn(async move {
        while !stops.load(Ordering::Relaxed) {
            assert!(standing.name().await.is_some());
            counts.fetch_add(1, Ordering::Relaxed);
        }
    });
    for round in 1..=5_u64 {
        let server = running.servers.issue(&[HOST], |_| {});
        let bundle = format!("{}{}", Authority::new("next").pem, running.clients.pem);
        running.mount.swap([&server.certificate, &server.key, &bundle]);
        let asking = async {
            while running.metric(RELOADS) != round.to_string() {
                assert!(running.ask(&client).await.is_some());
            }
        };
        timeout(LIMIT, asking).await.unwrap();
        assert!(running.ask(&client).await.is_some());
    }
    stop.store(true, Ordering::Relaxed);
    timeout(LIMIT, standing).await.unwrap().unwrap();
    assert!(asked.load(Ordering::Relaxed) > 0);
    assert_eq!(running.metric(&refused("certificate")), "0");
    running.end().await;
}

/// The server resumes no session whose authority is gone.
#[tokio::test]
async fn after_a_rotation_the_old_client_authority_counts_no_more() {
    let (mut running, new) = (Running::start(boundless()).await, Authority::new("new"));
    let of_old = running.client(&[NAME]);
    let of_new = Client::new(&running.servers, Some(&new.issue(&[NAME], |_| {})));
    assert!(running.ask(&of_old).await.is_some() && running.ask(&of_new).await.is_none());
    running.mount.swap([&running.server.certificate, &running.server.key, &new.pem]);
    running.until_metric(RELOADS, "1").await;
    assert!(running.ask(&of_old).await.is_none() && running.ask(&of_new).await.is_some());
    running.end().await;
}

#[rstest]
#[case::not_pem(0, |_: &Authority| "no certificate".to_owned())]
#[case::expired(0, |servers: &Authority| servers.issue(&[HOST], expired).certificate)]
#[case::the_key_of_another(1, |servers: &Authority| servers.issue(&[HOST], |_| {}).key)]
#[case::no_key(1, |_: &Authority| String::new())]
#[case::no_client_authority(2, |_: &Authority| String::new())]
#[tokio::test]
async fn a_bad_new_file_keeps_the_old_one_and_says_so(
    #[case] place: usize,
    #[case] bad: impl Fn(&Authority) -> String,
) {
    let mut running = Running::start(boundless()).await;
    let (until, bad) = (running.metric(EXPIRY), bad(&running.servers));
    let good = [&*running.server.certificate, &running.server.key, &running.clients.pem];
    let mut contents = good;
    contents[place] = &bad;
    running.mount.swap(contents);
    running.until_metric(FAILING, "1").await;
    assert!(running.ask(&running.client(&[NAME])).await.is_some());
    assert_eq!(running.metric("tls_reloads_total{result=\"error\"}"), "1", "counted once, not at every look");
    assert_eq!(running.metric(EXPIRY), until);
    running.mount.swap([&running.server.certificate, &running.server.key, &running.clients.pem]);
    running.until_metric(FAILING, "0").await;
    running.end().await;
}

/// The startup error names the unusable file and the problem, and quotes no key.
#[rstest]
#[case::missing("tls.crt", None, "can't read it")]
#[case::not_pem("tls.crt", Some("text"), "it holds no certificate")]
#[case::no_key("tls.key", Some("secret words"), "it holds no private key")]
#[case::no_authority("ca.crt", Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "can't be used")]
#[tokio::test]
async fn a_bad_file_ends_the_start(#[case] name: &str, #[case] content: Option<&str>, #[case] expected: &str) {
    let servers = Authority::new("servers");
    let mount = Mount::new(&servers.issue(&[HOST], |_| {}), &servers);
    fs::remove_file(mount.path(name)).unwrap();
    if let Some(content) = content {
        fs::write(mount.path(name), content).unwrap();
    }
    let files = mount.files(Some(AllowedClients::default()));
    let error = Certificates::follow(files, TlsMetrics::default(), CancellationToken::new()).unwrap_err().to_string();
    assert!(error.contains(name) && error.contains(expected), "{error}");
    assert!(!error.contains("secret words"), "{error}");
}
