//! New files take effect without a failed call, and invalid files don't take effect.

use super::*;

/// Clients that trust both authorities call without pause, on one connection and on new ones, while certificate, key
/// and client authority change several times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_under_load_fails_no_call() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let mut running = Running::start(&servers.issue(&[HOST], |_| {}), Some((&clients, &[]))).await;
    let client = Client::new(&servers, Some(&clients.issue(&["ca"], |_| {})));
    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));

    let standing = {
        let (config, address) = (Arc::clone(&client.config), tcp(&running.grpc));
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = TlsConnector::from(config).connect(ServerName::try_from(HOST).unwrap(), stream).await.unwrap();
        let stream = parking_lot::Mutex::new(Some(hyper_util::rt::TokioIo::new(stream)));
        // It connects only once: a dropped connection would fail the later calls.
        let connector = service_fn(move |_| {
            let stream = stream.lock().take().ok_or_else(|| std::io::Error::other("the connection was dropped"));
            async move { stream }
        });
        let channel = Endpoint::from_static("http://provider").connect_with_connector_lazy(connector);
        let (stop, asked) = (Arc::clone(&stop), Arc::clone(&asked));
        tokio::spawn(async move {
            let mut client = HealthClient::new(channel);
            while !stop.load(Ordering::Relaxed) {
                client.check(HealthCheckRequest { service: String::new() }).await.unwrap();
                asked.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    for round in 1..=5_u64 {
        let server = servers.issue(&[HOST], |_| {});
        let bundle = format!("{}{}", Authority::new("next").pem, clients.pem);
        running.mount.swap(&[("tls.crt", &server.certificate), ("tls.key", &server.key), ("ca.crt", &bundle)]);
        let asking = timeout(LIMIT, async {
            while running.metric("tls_reloads_total{result=\"ok\"}") != round.to_string() {
                running.ask(&client).await.unwrap();
            }
        });
        asking.await.unwrap();
        running.ask(&client).await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    timeout(LIMIT, standing).await.unwrap().unwrap();
    assert!(asked.load(Ordering::Relaxed) > 0);
    assert_eq!(running.metric("tls_refused_connections_total{reason=\"certificate\"}"), "0");
    running.end().await;
}

#[tokio::test]
async fn after_a_rotation_the_old_client_authority_counts_no_more() {
    let (servers, old, new) = (Authority::new("servers"), Authority::new("old"), Authority::new("new"));
    let server = servers.issue(&[HOST], |_| {});
    let mut running = Running::start(&server, Some((&old, &[]))).await;
    let of_old = Client::new(&servers, Some(&old.issue(&["ca"], |_| {})));
    let of_new = Client::new(&servers, Some(&new.issue(&["ca"], |_| {})));
    running.ask(&of_old).await.unwrap();
    running.mount.swap(&[("tls.crt", &server.certificate), ("tls.key", &server.key), ("ca.crt", &new.pem)]);
    running.until_metric("tls_reloads_total{result=\"ok\"}", "1").await;
    // The server resumes no session whose authority is gone.
    assert!(running.ask(&of_old).await.is_err());
    running.ask(&of_new).await.unwrap();
    running.end().await;
}

#[rstest]
#[case::not_pem("tls.crt", |_: &Authority| "no certificate".to_owned())]
#[case::expired("tls.crt", |servers: &Authority| servers.issue(&[HOST], expired).certificate)]
#[case::the_key_of_another("tls.key", |servers: &Authority| servers.issue(&[HOST], |_| {}).key)]
#[case::no_key("tls.key", |_: &Authority| String::new())]
#[case::no_client_authority("ca.crt", |_: &Authority| String::new())]
#[tokio::test]
async fn a_bad_new_file_keeps_the_old_one_and_says_so(#[case] name: &str, #[case] bad: impl Fn(&Authority) -> String) {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = servers.issue(&[HOST], |_| {});
    let mut running = Running::start(&server, Some((&clients, &[]))).await;
    let until = running.metric("tls_certificate_expiry_timestamp_seconds{certificate=\"server\"}");
    let good = [("tls.crt", &*server.certificate), ("tls.key", &*server.key), ("ca.crt", &*clients.pem)];
    let bad = bad(&servers);
    running.mount.swap(&good.map(|(other, content)| (other, if other == name { &*bad } else { content })));
    running.until_metric("tls_reload_failing", "1").await;
    let client = Client::new(&servers, Some(&clients.issue(&["ca"], |_| {})));
    running.ask(&client).await.unwrap();
    assert_eq!(running.metric("tls_reloads_total{result=\"error\"}"), "1", "counted once, not at every look");
    assert_eq!(running.metric("tls_certificate_expiry_timestamp_seconds{certificate=\"server\"}"), until);
    running.mount.swap(&good);
    running.until_metric("tls_reload_failing", "0").await;
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
    let server = servers.issue(&[HOST], |_| {});
    let mount = Mount::new(&[("tls.crt", &server.certificate), ("tls.key", &server.key), ("ca.crt", &servers.pem)]);
    fs::remove_file(mount.path(name)).unwrap();
    if let Some(content) = content {
        fs::write(mount.path(name), content).unwrap();
    }
    let clients = ClientFiles::Authority { files: vec![mount.path("ca.crt")], allowed: AllowedClients::default() };
    let files = TlsFiles { certificate: mount.path("tls.crt"), key: mount.path("tls.key"), clients };
    let error = Certificates::follow(files, TlsMetrics::default(), CancellationToken::new()).unwrap_err().to_string();
    assert!(error.contains(name) && error.contains(expected), "{error}");
    assert!(!error.contains("secret words"), "{error}");
}
