# Interrupted training leaves its state beside the model, in a file that snakemake does not own and so does not remove. Every
# start of this rule, by --requeue of SLURM, by 'retries' or by hand, goes on from there, or begins where there is none.
rule train:
    input:
        corpus=rules.merge.output.corpus,
        corpora=PLACES.corpora(),
        # Before training, so that a corpus that should not be trained on is found out early; a check that is made again, with
        # another limit, changes nothing that was learnt.
        check=ancient(rules.check.output.check),
        named=pipeline.given(config["train"]["options"], *pipeline.network_file(config)),
    output:
        model=directory(f"{config['results']}/model"),
    log:
        f"{config['results']}/logs/train.log",
    benchmark:
        f"{config['results']}/benchmarks/train.tsv"
    retries: config["train"]["retries"]
    conda:
        "../envs/leech.yaml"
    threads: pipeline.train_threads(config)
    resources:
        mem_mb=lambda wildcards, input: pipeline.train_memory_mb(config, input.corpora),
        runtime=config["runtime"]["train"],
        gpu=pipeline.gpu_count(config, config["train_gpus"]),
        gres=pipeline.gpu_gres(config, config["train_gpus"]),
        lsf_extra=pipeline.lsf_gpus(config["train_gpus"]),
        # SLURM may spread --gpus over nodes, and one process tree uses only those of its own.
        nodes=1,
    params:
        options=pipeline.train_options(config),
    shell:
        "OMP_NUM_THREADS=1 leech model train --data {input.corpus:q} --resume {params.options:q} -o {output.model:q} &> {log:q}"


rule calibrate:
    input:
        model=rules.train.output.model,
        corpus=rules.merge.output.corpus,
        corpora=PLACES.corpora(),
    output:
        model=directory(f"{config['results']}/model.calibrated"),
    log:
        f"{config['results']}/logs/calibrate.log",
    benchmark:
        f"{config['results']}/benchmarks/calibrate.tsv"
    conda:
        "../envs/leech.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, input: pipeline.score_memory_mb(corpora=input.corpora),
        runtime=config["runtime"]["test"],
    params:
        options=pipeline.calibrate_options(config),
    shell:
        "leech model calibrate --model {input.model:q} --data {input.corpus:q} --device cpu {params.options:q}"
        " -o {output.model:q} &> {log:q}"


rule test:
    input:
        model=PLACES.model(),
        corpus=rules.merge.output.corpus,
        corpora=PLACES.corpora(),
    output:
        metrics=f"{config['results']}/metrics.json",
        scores=f"{config['results']}/scores.tsv.gz",
    log:
        f"{config['results']}/logs/test.log",
    benchmark:
        f"{config['results']}/benchmarks/test.tsv"
    conda:
        "../envs/leech.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, input: pipeline.score_memory_mb(corpora=input.corpora),
        runtime=config["runtime"]["test"],
    shell:
        "leech eval test --model {input.model:q} --data {input.corpus:q} --device cpu --scores {output.scores:q}"
        " -o {output.metrics:q} &> {log:q}"
