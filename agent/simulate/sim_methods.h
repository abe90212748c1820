/* SPDX-License-Identifier: MIT */
/* The methods, one row and one file each: sim_NAME is its struct sim_method. Included several
 * times. Parameter servers and collectives exist only here: an agent has no centre. */
METHOD(dunlin)      /* the agent's own core */
METHOD(bsp)         /* all-reduce of the gradients at every step */
METHOD(local_sgd)   /* H own steps, then the mean of the parameters */
METHOD(fedavg)      /* local epochs, then a weighted mean */
METHOD(ssp)         /* a server, bounded staleness */
METHOD(easgd)       /* a server's centre, elastic */
METHOD(gossip_pair) /* with a random peer, both move */
METHOD(gossip_pull) /* with a random peer, who asked moves */
METHOD(gossip_push) /* with a random peer, who receives moves */
METHOD(adpsgd)      /* with a random peer, then the step */
METHOD(dpsgd)       /* neighbours of a fixed graph */
METHOD(selsync)     /* all average when one gradient changed */
#undef METHOD
