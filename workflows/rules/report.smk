rule report:
    input:
        model=PLACES.model(),
        tested=PLACES.tested(),
        corpora=PLACES.corpora(),
        calls=expand(rules.predict.output.tables, sample=PLACES.called()),
    output:
        page=f"{config['results']}/report.html",
    log:
        f"{config['results']}/logs/report.log",
    benchmark:
        f"{config['results']}/benchmarks/report.tsv"
    conda:
        "../envs/leech.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, input: 1000 + pipeline.merge_memory_mb(input.corpora),
        runtime=config["runtime"]["report"],
    params:
        options=pipeline.report_options(config, SAMPLES),
    shell:
        "leech report --model {input.model:q} {params.options:q} -o {output.page:q} &> {log:q}"
