//! All sources of the configuration together, in folders of a test.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use sandbox::Guarantee;

use super::key::{Amount, Number, Scope};
use super::*;
use harness::TestFolder;

const MAX_MEMORY: Number = Number::Limit(Scope::Max, Amount::MemoryMb);

struct Scene {
    folder: TestFolder,
    surroundings: Surroundings,
    options: Options,
}

impl Scene {
    fn new() -> Self {
        let folder = TestFolder::new();
        let place = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let surroundings = Surroundings {
            system: place("etc"),
            user: Some(place("user")),
            working: Some(place("work")),
            variables: BTreeMap::new(),
        };
        Self { folder, surroundings, options: Options::default() }
    }

    fn write(&self, place: &str, text: &str) -> PathBuf {
        let path = self.folder.file(&format!("{place}/palisade.toml"), text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    }

    fn variable(&mut self, name: &str, value: &str) {
        self.surroundings.variables.insert(name.to_owned(), value.into());
    }

    fn load(&self) -> Result<Loaded, ConfigError> {
        load_from(&self.surroundings, &self.options)
    }

    fn error(&self) -> String {
        self.load().err().map(|error| error.to_string()).unwrap()
    }

    fn max_memory(&self) -> (u64, Origin) {
        let loaded = self.load().unwrap();
        let found = loaded.settings.number(MAX_MEMORY);
        (found.value, found.origin.clone())
    }
}

fn max_memory(mb: u64) -> String {
    format!("[limits.max]\nmemory_mb = {mb}\n")
}

#[test]
fn without_any_file_the_defaults_are_in_force() {
    let loaded = Scene::new().load().unwrap();
    let (mut policy, cores) = built_in();
    loaded.settings.fill_policy(&mut policy);
    assert_eq!(policy, built_in().0);
    assert_eq!(loaded.settings.admission().runs_max, AdmissionLimits::for_machine(cores).runs_max);
    assert!(loaded.ignored.is_empty());
    assert_eq!(loaded.files.len(), 3);
}

#[test]
fn a_stronger_source_overrides_a_weaker_one() {
    let mut scene = Scene::new();
    assert_eq!(scene.max_memory(), (4096, Origin::Default));
    let path = scene.write("etc", &max_memory(8192));
    assert_eq!(scene.max_memory(), (8192, Origin::File { path, line: 2 }));
    let path = scene.write("user", &max_memory(6000));
    assert_eq!(scene.max_memory(), (6000, Origin::File { path, line: 2 }));
    let path = scene.write("work", &max_memory(1000));
    assert_eq!(scene.max_memory(), (1000, Origin::File { path, line: 2 }));
    scene.variable("PALISADE_LIMITS_MAX_MEMORY_MB", "7000");
    assert_eq!(scene.max_memory(), (7000, Origin::Variable("PALISADE_LIMITS_MAX_MEMORY_MB".to_owned())));
    scene.variable("PALISADE_ALLOW_MISSING", "cpu_limited");
    scene.options.allow_missing = vec!["memory_limited".to_owned()];
    let allowed = scene.load().unwrap().settings.allow_missing;
    assert_eq!(allowed.value, [Guarantee::MemoryLimited], "a flag overrides, it does not add");
    assert_eq!(allowed.origin, Origin::Flag("--allow-missing"));
}

#[test]
fn a_hostile_working_directory_cannot_weaken_the_wall() {
    let scene = Scene::new();
    scene.write("user", "allow_missing = [\"cpu_limited\"]\n[limits.max]\nmemory_mb = 1000\n");
    scene.write(
        "work",
        "allow_missing = ['network_none']\nstate_dir = '/tmp/theirs'\nlog.level = 'error'\n\
         interpreters.python = '/tmp/evil'\nserve.listen = ['0.0.0.0:80']\nserve.auth = 'none'\n\
         serve.behind_proxy = ['10.0.0.5']\nserve.hosts = ['evil.example']\nserve.origins = ['https://evil.example']\n\
         serve.tls_cert = '/tmp/c'\nserve.tls_key = '/tmp/k'\nserve.connections_max = 7\nstore.days = 1\nadmission.runs_max = 4096\nadmission.queue_max = 3\n\
         [limits.max]\nmemory_mb = 2000\nprocesses = 10\n[limits.default]\ntimeout_ms = 600000\nmemory_mb = 100\n",
    );
    let loaded = scene.load().unwrap();
    let ignored: Vec<String> = loaded.ignored.iter().map(|ignored| ignored.key.name()).collect();
    let expected = [
        "allow_missing",
        "state_dir",
        "log.level",
        "interpreters.python",
        "serve.listen",
        "serve.auth",
        "serve.behind_proxy",
        "serve.hosts",
        "serve.origins",
        "serve.tls_cert",
        "serve.tls_key",
        "store.days",
        "admission.runs_max",
        "limits.max.memory_mb",
        "limits.default.timeout_ms",
    ];
    assert_eq!(ignored, expected);
    let settings = loaded.settings;
    assert_eq!(settings.allow_missing.value, [Guarantee::CpuLimited]);
    assert_eq!(settings.state_dir.value, None);
    assert!(settings.interpreters.is_empty());
    assert_eq!((settings.admission().queue_max, settings.connections_max()), (3, 7));
    assert!(settings.serve.listen.value.iter().all(service::Address::is_local));
    assert_eq!(settings.serve.auth.origin, Origin::Default);
    let (mut policy, _) = built_in();
    settings.fill_policy(&mut policy);
    assert_eq!((policy.maxima.memory_bytes, policy.maxima.processes), (1000 << 20, 10));
    assert_eq!((policy.defaults.memory_bytes, policy.defaults.processes), (100 << 20, 10));
    assert_eq!(policy.defaults.wall_ms, 30_000);
}

#[test]
fn standing_in_the_users_own_folder_does_not_make_its_file_a_strangers() {
    let mut scene = Scene::new();
    scene.surroundings.working = scene.surroundings.user.clone();
    scene.write("user", "allow_missing = ['cpu_limited']\n");
    let loaded = scene.load().unwrap();
    assert!(loaded.ignored.is_empty());
    assert_eq!(loaded.settings.allow_missing.value, [Guarantee::CpuLimited]);
}

#[test]
fn a_mistake_anywhere_is_an_error() {
    for place in ["etc", "user", "work"] {
        let scene = Scene::new();
        let path = scene.write(place, "\n[limits.max]\nmemory_mb = 'lots'\n");
        let message = scene.error();
        let expected =
            format!("{}:3: limits.max.memory_mb: it must be a whole number from 16", path.display());
        assert!(message.contains(&expected), "{message}");
    }
}

#[test]
fn the_server_is_set_up_in_a_file_of_the_operator() {
    let scene = Scene::new();
    let path = scene.write(
        "etc",
        "[serve]\nlisten = ['0.0.0.0:8443']\ntls_cert = '/etc/c.pem'\ntls_key = '/etc/k.pem'\n[store]\ndays = 30\n",
    );
    let settings = scene.load().unwrap().settings;
    assert_eq!(settings.serve.listen.value, ["0.0.0.0:8443".parse().unwrap()]);
    assert_eq!(settings.serve.listen.origin, Origin::File { path: path.clone(), line: 2 });
    assert_eq!(settings.store_limits().age_max.as_secs(), 30 * 24 * 60 * 60);
    scene
        .write("etc", "[serve]\nauth = 'token'\nlisten = ['example.com:1']\nbehind_proxy = true\nport = 1\n");
    let message = scene.error();
    for (line, part) in [
        (3, "serve.listen: `example.com:1` is no address"),
        (4, "serve.behind_proxy: it must name the addresses of the proxy"),
        (5, "unknown key `serve.port`"),
    ] {
        assert!(message.contains(&format!("{}:{line}: {part}", path.display())), "{message}");
    }
}

#[test]
fn mistaken_variables_are_errors_and_strangers_are_not() {
    let mut scene = Scene::new();
    scene.variable("PALISADE_SERVICE_HOST", "10.0.0.1");
    scene.variable("PALISADE_PORT_8808_TCP_ADDR", "10.0.0.1");
    scene.variable("PALISADE_LIMITS_MAX_CPUS", "");
    scene.load().unwrap();
    scene.variable("PALISADE_LOG_LEVEL", "debug");
    let message = scene.error();
    assert!(
        message.contains("$PALISADE_LOG_LEVEL")
            && message.contains("nearest are PALISADE_LOG, PALISADE_LOG_FORMAT"),
        "{message}"
    );
    scene.variable("PALISADE_LOG_LEVEL", "");
    scene.variable("PALISADE_LIMITS_DEFAULT_MEMORY_MB", "200");
    scene.variable("PALISADE_LIMITS_MAX_MEMORY_MB", "100");
    assert!(scene.error().contains("above limits.max.memory_mb"));
}

#[test]
fn a_trusted_file_must_not_be_writable_by_others() {
    let scene = Scene::new();
    let path = scene.write("etc", &max_memory(100));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
    let message = scene.error();
    assert!(message.contains("chmod go-w"), "{message}");
    fs::remove_file(&path).unwrap();
    let path = scene.write("work", &max_memory(100));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(scene.max_memory().0, 100, "the working directory is not trusted anyway");
}

#[test]
fn only_plain_files_of_bounded_size_are_read() {
    let scene = Scene::new();
    let path = scene.write("work", &"# long\n".repeat(10_000));
    assert!(scene.error().contains("larger than 65536 bytes"));
    fs::remove_file(&path).unwrap();
    let secret = scene.folder.file("secret", "password = 1\n");
    std::os::unix::fs::symlink(&secret, &path).unwrap();
    let message = scene.error();
    assert!(message.contains("symbolic link") && !message.contains("password"), "{message}");
    fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
    assert!(scene.error().contains("not a plain file"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(scene.error().contains("not a plain file"));
}

#[test]
fn a_link_to_the_users_own_file_is_followed() {
    let scene = Scene::new();
    let real = scene.folder.file("dotfiles/palisade.toml", max_memory(321));
    fs::set_permissions(&real, fs::Permissions::from_mode(0o644)).unwrap();
    std::os::unix::fs::symlink(&real, scene.folder.path().join("user/palisade.toml")).unwrap();
    assert_eq!(scene.max_memory().0, 321);
}

#[test]
fn a_state_directory_given_as_flag_may_be_relative() {
    let mut scene = Scene::new();
    scene.options.state_dir = Some(PathBuf::from("here"));
    let found = scene.load().unwrap().settings.state_dir;
    assert!(found.value.is_some_and(|path| path.is_absolute() && path.ends_with("here")));
    scene.options.log_level = Some("loud".to_owned());
    assert!(scene.error().contains("--log-level: it must be one of"));
}

#[test]
fn clients_are_set_up_for_the_address_that_is_served_by_default() {
    assert_eq!(setup::LOCAL_URL, format!("http://{}/mcp", service::DEFAULT_ADDRESS));
}

#[test]
fn the_variables_of_opentelemetry_are_honoured_below_our_own_and_are_never_a_mistake() {
    let endpoint = |variables: &[(&str, &str)]| {
        let mut scene = Scene::new();
        variables.iter().for_each(|(name, value)| scene.variable(name, value));
        let loaded = scene.load().unwrap();
        (loaded.settings.otlp_endpoint.value, loaded.ignored.len())
    };
    let standard = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
    let own = |address: &str| Some(address.to_owned());
    assert_eq!(endpoint(&[standard]), (own("http://collector:4318"), 0));
    assert_eq!(endpoint(&[standard, ("PALISADE_OTLP_ENDPOINT", "http://mine")]), (own("http://mine"), 0));
    assert_eq!(endpoint(&[standard, ("PALISADE_OTLP_ENDPOINT", "none")]), (None, 0));
    assert_eq!(endpoint(&[standard, ("OTEL_SDK_DISABLED", "true")]), (None, 0));
    assert_eq!(endpoint(&[standard, ("OTEL_TRACES_EXPORTER", "none")]), (None, 0));
    assert_eq!(endpoint(&[standard, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]), (None, 1));
    assert_eq!(endpoint(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector")]), (None, 1));
    assert_eq!(endpoint(&[]), (None, 0));
}

#[test]
fn bindings_are_tables_in_order_and_a_working_directory_has_no_say() {
    let mut scene = Scene::new();
    scene.write(
        "user",
        "[[policy.bind]]\nmatch = \"key:ci-*\"\npolicy = \"ci\"\n[[policy.bind]]\nmatch = \"*\"\npolicy = \"team\"\n",
    );
    scene.write("work", "policy.bind = [{ match = \"*\", policy = \"open\" }]\n");
    let loaded = scene.load().unwrap();
    let shown = |settings: &Settings| -> Vec<String> {
        settings.policy_bind.value.iter().map(|one| format!("{}={}", one.callers, one.policy)).collect()
    };
    assert_eq!(shown(&loaded.settings), ["key:ci-*=ci", "*=team"]);
    assert_eq!(loaded.ignored.len(), 1);
    scene.variable("PALISADE_POLICY_BIND", "local=locked-down");
    assert_eq!(shown(&scene.load().unwrap().settings), ["local=locked-down"]);
    for (bad, part) in [
        ("policy.bind = \"ci\"", "tables with match and policy"),
        ("policy.bind = [{ match = \"a\" }]", "policy is missing"),
        ("policy.bind = [{ match = \"a\", policy = 1 }]", "policy must be a text"),
        ("policy.bind = [{ match = \"a\", policy = \"b\", for = 1 }]", "unknown key `for`"),
    ] {
        scene.write("user", bad);
        assert!(scene.error().contains(part), "{bad}: {}", scene.error());
    }
}

#[test]
fn changed_policies_bindings_and_quotas_are_read_when_they_have_settled() {
    let scene = Scene::new();
    let write = |place: &str, text: &str| {
        let path = scene.folder.file(place, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    };
    fs::create_dir(scene.folder.path().join("user/policies")).unwrap();
    write("user/policies/own.yaml", "version: '1'\ndefault: deny\n");
    scene.write("user", "[[policy.bind]]\nmatch = \"local\"\npolicy = \"own\"\n");
    let settings = scene.load().unwrap().settings;
    let mut watch = policies::Watch::of(scene.surroundings.clone(), scene.options.clone(), &settings);
    assert!(watch.poll(false).is_none() && watch.poll(false).is_none(), "nothing changed");
    write("user/policies/own.yaml", "version: '1'\ndefault: maybe\n");
    assert!(watch.poll(false).is_none(), "not settled yet");
    let error = watch.poll(false).unwrap().unwrap_err();
    assert!(error.starts_with("own.yaml: line 2, column 10"), "without its folder: {error}");
    assert!(watch.poll(false).is_none(), "told once");
    assert!(watch.poll(true).unwrap().is_err(), "on demand");
    write("user/policies/own.yaml", "version: '1'\ndefault: allow\ndescription: new\n");
    scene.write("user", "[quota]\nparallel_runs = 3\n[[policy.bind]]\nmatch = \"*\"\npolicy = \"own\"\n");
    assert!(watch.poll(false).is_none());
    let policies::Reloaded { book, quotas } = watch.poll(false).unwrap().unwrap();
    assert_eq!(quotas.usual.get(policy::Amount::ParallelRuns), Some(3));
    assert_eq!(book.bindings()[0].callers, "*");
    assert_eq!(book.get("own").unwrap().rules.description.as_deref(), Some("new"));
    assert!(watch.poll(false).is_none());
    fs::remove_file(scene.folder.path().join("user/policies/own.yaml")).unwrap();
    watch.poll(false);
    assert!(watch.poll(false).unwrap().unwrap_err().contains("does not exist"));
}

#[test]
fn policies_are_files_beside_the_configuration() {
    let scene = Scene::new();
    let put = |place: &str, text: &str| {
        let path = scene.folder.file(place, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    };
    let book = || {
        let settings = scene.load().unwrap().settings;
        policies::load_from(&scene.surroundings, &settings).map_err(|error| error.to_string())
    };
    scene.write("user", "[[policy.bind]]\nmatch = \"*\"\npolicy = \"own\"\n");
    assert!(book().unwrap_err().contains("palisade.toml:1"), "{}", book().unwrap_err());
    for folder in ["etc/policies", "user/policies"] {
        fs::create_dir(scene.folder.path().join(folder)).unwrap();
    }
    put("etc/policies/own.yaml", "version: '1'\ndefault: deny\n");
    put("etc/policies/README.md", "not a policy");
    assert!(book().unwrap().get("own").is_some());
    let bad =
        put("user/policies/own.json", "{\"version\": \"1\", \"default\": \"deny\", \"default\": \"allow\"}");
    let error = book().unwrap_err();
    assert!(error.contains("own.json: line 1, column 37") && error.contains("second time"), "{error}");
    fs::set_permissions(&bad, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(book().unwrap_err().contains("others than its owner may write it"));
    fs::remove_file(&bad).unwrap();
    assert!(book().is_ok());
    let folder = scene.folder.path().join("user/policies");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(
        book().unwrap_err().contains("others than its owner may write it"),
        "they could exchange the files"
    );
}

#[test]
fn quotas_have_a_usual_amount_and_rules_for_callers_that_match() {
    use policy::{Amount, Caller, Principal};
    let mut scene = Scene::new();
    let caller =
        |label: &str| Caller { label: label.into(), ..Caller::owner(Principal::new(label).unwrap()) };
    scene.write(
        "user",
        "[quota]\nparallel_runs = 4\ncpu_s_per_day = 60\n[[quota.for]]\nmatch = \"key:ci-*\"\nparallel_runs = 1\ncpu_s_per_day = \"none\"\n",
    );
    scene.write("work", "quota.parallel_runs = 1\n");
    let loaded = scene.load().unwrap();
    assert_eq!(loaded.ignored.len(), 1, "a working directory has no say");
    let quotas = loaded.settings.quota.quotas();
    let of = |label: &str, amount| quotas.of(&caller(label)).get(amount);
    assert_eq!((of("key:x", Amount::ParallelRuns), of("key:x", Amount::CpuSPerDay)), (Some(4), Some(60)));
    assert_eq!((of("key:ci-a", Amount::ParallelRuns), of("key:ci-a", Amount::CpuSPerDay)), (Some(1), None));
    assert!(quotas.of(&Caller::local()).is_none());
    scene.variable("PALISADE_QUOTA_PARALLEL_RUNS", "none");
    scene.variable("PALISADE_QUOTA_FOR", "claim:groups=ops-*=sandboxes:3;disk_mb:100,key:*=sandboxes:none");
    let quotas = scene.load().unwrap().settings.quota.quotas();
    assert_eq!(quotas.usual.get(Amount::ParallelRuns), None);
    assert_eq!(quotas.rules[0].callers, "claim:groups=ops-*");
    assert_eq!(quotas.rules[0].get(Amount::DiskMb), Some(Some(100)));
    assert_eq!(quotas.rules[1].get(Amount::Sandboxes), Some(None));
}

#[test]
fn a_quota_that_is_no_amount_is_refused() {
    let scene = Scene::new();
    for (bad, part) in [
        ("quota.parallel_runs = -1", "from 0 to 1000000000"),
        ("quota.parallel_runs = 1.5", "from 0 to 1000000000"),
        ("quota.parallel_runs = \"many\"", "or \"none\""),
        ("quota.cpu_s_per_day = 99999999999999", "from 0 to 1000000000"),
        ("quota.runs = 1", "unknown key `quota.runs`"),
        ("quota.for = \"ci\"", "tables with match and amounts"),
        ("quota.for = [{ parallel_runs = 1 }]", "match is missing"),
        ("quota.for = [{ match = 1 }]", "match must be a text"),
        ("quota.for = [{ match = \"a\", runs = 1 }]", "unknown key `runs`"),
        ("quota.for = [{ match = \"a\", disk_mb = -1 }]", "disk_mb: it must be"),
    ] {
        scene.write("user", bad);
        assert!(scene.error().contains(part), "{bad}: {}", scene.error());
    }
}
