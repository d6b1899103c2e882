rule predict:
    input:
        model=PLACES.model(),
        pod5=lambda wildcards: PLACES.pod5(wildcards.sample),
        bam=lambda wildcards: PLACES.bam(wildcards.sample),
        reference=config["reference"],
        named=pipeline.given(config["predict"]["options"]),
    output:
        bam=f"{config['results']}/calls/{{sample}}.bam",
        tables=multiext(
            f"{config['results']}/tables/{{sample}}",
            ".charging_prob.tsv.gz",
            ".charging.cpm.tsv.gz",
            ".charging_calls.tsv.gz",
        ),
    log:
        f"{config['results']}/logs/predict/{{sample}}.log",
    benchmark:
        f"{config['results']}/benchmarks/predict/{{sample}}.tsv"
    conda:
        "../envs/leech.yaml"
    threads: config["predict"]["workers"]
    resources:
        mem_mb=lambda wildcards, threads: pipeline.score_memory_mb(workers=threads),
        runtime=config["runtime"]["predict"],
    params:
        options=pipeline.predict_options(config),
        tables=lambda wildcards, output: Path(output.tables[0]).parent,
    shell:
        "leech predict --model {input.model:q} --pod5 {input.pod5:q} --bam {input.bam:q} --reference {input.reference:q}"
        " --sample {wildcards.sample:q} --tables {params.tables:q} --workers {threads} --device cpu {params.options:q}"
        " -o {output.bam:q} &> {log:q}"
