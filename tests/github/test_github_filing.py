from tests.findings.samples import finding
def test_smoke(hub, tmp_path):
    from tests.tracker.test_filing import NIGHT, DAY
    from d3bot.tracker import file_run
    from d3bot.history.folder import RunWriter
    from d3bot.history.finding_folder import write_finding
    from tests.findings.samples import run
    for n in (1,2):
        folder = tmp_path/f"run{n}"
        head={"started": hub.clock.now().isoformat(), "previous":"r0"}
        RunWriter.create(folder, run(f"r{n}", **head)).finish(run(f"r{n}", **head))
        write_finding(folder, finding(), "print(1)\n", "bad", None, "x")
        print(file_run(folder, hub.tracker(f"r{n}"), hub.clock.now()))
        print(len(hub.proxy.requests), hub.proxy.requests); hub.proxy.requests.clear()
        hub.clock.sleep(86400)
    print(hub.issues()[0]["body"]); 
